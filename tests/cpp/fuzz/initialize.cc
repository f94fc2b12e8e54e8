// What libFuzzer calls first, in every fuzzer.
#include <google/protobuf/stubs/logging.h>

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);  // A line for every string that is not UTF-8.
  return 0;
}
