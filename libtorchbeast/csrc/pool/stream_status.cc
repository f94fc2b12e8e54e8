#include "pool/stream_status.h"

#include <string>

namespace torchbeast {

namespace {

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Why the two sides cannot agree on an encrypted connection; empty if that is not what is wrong.
std::string ExplainHandshake(const std::string& text) {
  if (Contains(text, "certificate verify failed") || Contains(text, "CERTIFICATE_VERIFY_FAILED")) {
    return "this side refused the server's certificate: it has expired, or the given root did not "
           "sign "
           "it";
  }
  if (Contains(text, "is not in peer certificate")) {
    return "this side refused the server's certificate, which is for another host name";
  }
  if (Contains(text, "wrong version number") || Contains(text, "WRONG_VERSION_NUMBER")) {
    return "the server does not use TLS";
  }
  if (Contains(text, "alert") || Contains(text, "ALERT")) {
    return "the server refused this side's certificate";
  }
  return "";
}

}  // namespace

bool IsHangUp(const grpc::Status& status, const StreamHistory& history) {
  if (history.answered || status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  const std::string& text = status.error_message();
  return Contains(text, "Socket closed") || Contains(text, "Connection reset") ||
         Contains(text, "Broken pipe");
}

StreamError ExplainStatus(const grpc::Status& status, const StreamHistory& history) {
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
      // Either the server is full, or a message is too large, as it will be the next time.
      return {Contains(text, "larger than max") ? Remedy::kReconnectCounted : Remedy::kReconnect,
              message};
    case grpc::StatusCode::UNAVAILABLE:
      break;
    default:
      return {Remedy::kReconnect, "it went away (" + message + ")"};
  }
  if (history.answered) return {Remedy::kReconnect, "it went away (" + message + ")"};
  const std::string refusal = history.tls ? ExplainHandshake(text) : "";
  if (!refusal.empty()) {
    return {Remedy::kEndRun, "TLS failed: " + refusal + " (" + message + ")"};
  }
  if (history.num_hang_ups >= kManyHangUps) {
    return {Remedy::kReconnect, (history.tls ? "it accepts connections and hangs up: it probably "
                                               "refuses this side's certificate ("
                                             : "it accepts connections and hangs up: it probably "
                                               "expects TLS (") +
                                    message + ")"};
  }
  return {Remedy::kReconnect, message};
}

}  // namespace torchbeast
