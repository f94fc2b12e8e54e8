#include <cstring>
#include <memory>
#include <string>

#include "client.h"
#include "echo_environment.h"
#include "fuzzers.h"
#include "input.h"

namespace torchbeast {

namespace {

// The client's end of the stream. It must accept all that the server's end answers.
class Receiver {
 public:
  explicit Receiver(int64_t num_environments)
      : num_environments_(num_environments), client_(num_environments) {}

  void Take(const rpcenv::Reply& reply) {
    rpcenv::Reply received;
    Require(received.ParseFromString(reply.SerializeAsString()), "a reply that cannot be parsed");
    try {
      if (!client_.Take(received)) return;
    } catch (const WireError& error) {
      Require(false, "the client refuses the server's reply: " + std::string(error.what()));
    }
    for (int64_t e = 0; e < num_environments_; ++e) CheckRow(client_.row(e));
  }

 private:
  static void CheckRow(const FuzzClient::Row& row) {
    int32_t expected = 0;
    for (int i = 0; i < EchoEnvironment::kFrameBytes; ++i) {
      expected += std::to_integer<uint8_t>(row[0][i]);
    }
    int32_t sum;
    std::memcpy(&sum, row[1].get(), sizeof(sum));
    Require(sum == expected, "a frame that is not the environment's");
  }

  const int64_t num_environments_;
  FuzzClient client_;
};

// Opens an environment batch as the first of `messages` asks, and steps it as the others do.
void Serve(const std::vector<std::string>& messages) {
  rpcenv::Request request;
  if (messages.empty() || !request.ParseFromString(messages[0])) return;
  // The session checks all else that is in `open`. Fewer than it allows: many inputs run in a
  // second.
  const int64_t num_environments = 1 + request.open().num_environments() % 8;
  Receiver receiver(num_environments);
  rpcenv::Reply reply;
  try {
    EnvironmentBatch batch(EchoEnvironments(), num_environments, request.open().newest_plane());
    batch.Open(&reply);
    receiver.Take(reply);
    for (size_t i = 1; i < messages.size(); ++i) {
      if (!request.ParseFromString(messages[i])) return;
      Actions actions = DecodeActions(request, num_environments);
      // A copy of exactly this size: a string may have room behind its end.
      const auto copy = std::make_unique<std::byte[]>(request.actions().size());
      std::memcpy(copy.get(), actions.data, request.actions().size());
      actions.data = copy.get();
      batch.Step(actions, &reply);
      receiver.Take(reply);
    }
  } catch (const EnvironmentFailure& error) {
    reply.Clear();
    *reply.mutable_fatal() = error.failure();
    receiver.Take(reply);
  }
}

}  // namespace

void FuzzRequest(const uint8_t* data, size_t size) {
  try {
    Serve(Split(data, size).messages);
  } catch (const WireError&) {
  } catch (const Interrupted&) {
  }
}

}  // namespace torchbeast
