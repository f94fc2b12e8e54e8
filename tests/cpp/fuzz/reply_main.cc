// libFuzzer's entry points.
#include "fuzzers.h"
#include "mutator.h"
#include "rpcenv.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  torchbeast::FuzzReply(data, size);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return torchbeast::MutateInput(torchbeast::rpcenv::Reply::default_instance(), data, size,
                                 max_size, seed);
}
