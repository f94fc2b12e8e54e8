// libFuzzer on the server's end: requests of a client that may send anything.
#include <cstring>
#include <memory>
#include <string>

#include "wire/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace torchbeast;
  if (size == 0) return 0;
  const int64_t num_environments = 1 + bytes[0] % 8;
  rpcenv::Request request;
  if (!request.ParseFromArray(bytes + 1, static_cast<int>(size - 1))) return 0;
  try {
    const Actions actions = DecodeActions(request, num_environments);
    // A copy of exactly this size: a string may have room behind its end.
    const size_t num_bytes = request.actions().size();
    const auto copy = std::make_unique<std::byte[]>(num_bytes);
    std::memcpy(copy.get(), actions.data, num_bytes);
    for (int64_t e = 0; e < num_environments; ++e) {
      const std::byte* action = copy.get() + e * actions.spec.NumBytes();
      const std::string read(reinterpret_cast<const char*>(action), actions.spec.NumBytes());
      SingleInteger(actions.spec, action);
    }
  } catch (const WireError&) {
  }
  return 0;
}
