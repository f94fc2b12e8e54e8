#include "client.h"
#include "fuzzers.h"
#include "input.h"

namespace torchbeast {

void FuzzReply(const uint8_t* data, size_t size) {
  const FuzzInput input = Split(data, size);
  FuzzClient client(1 + input.options % 4);
  try {
    for (const std::string& message : input.messages) {
      rpcenv::Reply reply;
      if (!reply.ParseFromString(message) || !client.Take(reply)) return;
    }
  } catch (const WireError&) {
  }
}

}  // namespace torchbeast
