#include "pool/recovery.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "wire/socket_path.h"
#include "wire/wire.h"

namespace torchbeast {

namespace {

constexpr std::chrono::milliseconds kFirstBackoff{100};
constexpr std::chrono::milliseconds kLastBackoff{1000};
// What is kept of a status' message; tracebacks may be longer.
constexpr size_t kMaxReasonBytes = 4096;
constexpr size_t kMaxTracebackBytes = 128 << 10;
// A server that has not answered yet is logged after this fraction of the connect timeout.
constexpr int kWarnFraction = 20;

// In which failures of an environment are counted. As FAILURE_WINDOW_S of
// torchbeast/runtime/workers.py, but without the time of hangs: these end the server's process.
constexpr std::chrono::seconds kFailureWindow{600};

// The first line of `text`; of a traceback, whose frames are indented, the first line behind them.
std::string Headline(const std::string& text) {
  const size_t frame = text.rfind("\n  File \"");
  size_t start = frame == std::string::npos ? 0 : frame + 1;
  while (start < text.size() && text[start] == ' ') {
    start = std::min(text.find('\n', start), text.size() - 1) + 1;
  }
  return text.substr(start, text.find('\n', start) - start);
}

// The end of `text`, if it is longer than `max_bytes`.
std::string Tail(const std::string& text, size_t max_bytes) {
  return text.size() <= max_bytes ? text : "..." + text.substr(text.size() - max_bytes);
}

}  // namespace

std::string Seconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", static_cast<double>(time.count()) / 1000);
  return text;
}

Recovery::Recovery(const StreamOptions& stream, const ActorOptions& options)
    : stream_options_(stream),
      options_(options),
      backoff_(kFirstBackoff),
      environment_failures_(static_cast<size_t>(stream.num_environments)) {}

void Recovery::EndTrouble() {
  deadline_.reset();
  last_reason_.clear();
  backoff_ = kFirstBackoff;
  logged_ = false;
}

Clock::time_point Recovery::OnConnect(Clock::time_point now) {
  answered_ = false;
  if (!deadline_) deadline_ = now + options_.connect_timeout;
  return *deadline_;
}

void Recovery::OnProgress() {
  has_worked_ = true;
  EndTrouble();
}

std::chrono::milliseconds Recovery::NextBackoff() {
  const std::chrono::milliseconds result = backoff_;
  backoff_ = std::min(backoff_ * 2, kLastBackoff);
  return result;
}

StreamError Recovery::Explain(const grpc::Status& status) const {
  using Remedy = StreamError::Remedy;
  const std::string& text = status.error_message();
  const std::string message = text.empty() ? "no message" : text;
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return {Remedy::kReconnect, "it ended the stream"};
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return {Remedy::kEndRun, "it refuses this actor pool: " + message};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (text.find("larger than max") != std::string::npos) {
        return {Remedy::kEndRun, "a message is too large: " + message};
      }
      [[fallthrough]];
    default:
      return {Remedy::kReconnect, answered_ ? "it went away (" + message + ")" : message};
  }
}

std::optional<std::string> Recovery::Apply(const StreamError& error, bool others_answer,
                                           Clock::time_point now) {
  if (error.remedy() == StreamError::Remedy::kMove) return std::nullopt;
  const std::string reason = Tail(error.what(), kMaxReasonBytes);
  const std::string server = "Environment server at " + stream_options_.address + ": ";
  if (error.remedy() == StreamError::Remedy::kEndRun) throw ServerFailure(server + reason);
  if (deadline_ && now >= *deadline_) {
    if (!has_worked_ || !others_answer) {
      const bool has_other = !last_reason_.empty() && last_reason_ != reason;
      throw ServerFailure("No environment server answered at " + stream_options_.address +
                          " within " + Seconds(options_.connect_timeout) + ": " + reason +
                          (has_other ? "; before that: " + last_reason_ : ""));
    }
    deadline_ = now + options_.connect_timeout;
    logged_ = true;
    return server + "still away: " + reason + "; the run continues without it, connecting again";
  }
  last_reason_ = reason;
  if (logged_) return std::nullopt;
  if (answered_) {
    logged_ = true;
    return server + reason + "; connecting again";
  }
  // Not logged yet: the server may still be starting.
  const std::chrono::milliseconds warn_after = options_.connect_timeout / kWarnFraction;
  if (!deadline_ || now < *deadline_ - options_.connect_timeout + warn_after) {
    return std::nullopt;
  }
  logged_ = true;
  const bool may_need_tls = !SocketPath(stream_options_.address);
  return server + "no answer for " + Seconds(warn_after) + ": " + reason + "; connecting again" +
         (may_need_tls ? ". Is it started, and do both sides use TLS?" : "");
}

std::string Recovery::Count(const rpcenv::Failure& failure, std::optional<int32_t> task,
                            Clock::time_point now) {
  if (failure.environment() >= environment_failures_.size()) {
    throw WireError("failure of environment " + std::to_string(failure.environment()) + " of " +
                    std::to_string(environment_failures_.size()));
  }
  std::deque<Clock::time_point>& failures = environment_failures_[failure.environment()];
  failures.push_back(now);
  while (now - failures.front() > kFailureWindow) failures.pop_front();
  const auto count = static_cast<int>(failures.size());
  const std::string environment = "Environment " + std::to_string(failure.environment()) + " of " +
                                  stream_options_.address +
                                  (task ? " (game " + std::to_string(*task) + ")" : "") +
                                  " failed at its step " + std::to_string(failure.step());
  const std::string text = Tail(failure.text(), kMaxTracebackBytes);
  const std::string headline = Headline(text);
  const std::string within = " within " + Seconds(kFailureWindow);
  if (count >= options_.max_environment_failures) {
    throw ServerFailure(environment + ", " + std::to_string(count) + " times" + within + ": " +
                        headline + (headline == text ? "" : "\n" + text));
  }
  return environment + "; starting it again (" + std::to_string(count) + " of " +
         std::to_string(options_.max_environment_failures) + " failures" + within + "):\n" + text;
}

}  // namespace torchbeast
