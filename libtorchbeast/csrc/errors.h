// Exception types that cross into Python under the same names.
#pragma once

#include <stdexcept>

namespace torchbeast {

// The queue (or batcher) was closed while an item was being put in.
class ClosedBatchingQueue : public std::runtime_error {
 public:
  ClosedBatchingQueue() : std::runtime_error("Enqueue to closed queue") {}
};

// A batch of inference inputs was dropped without outputs.
class AsyncError : public std::runtime_error {
 public:
  AsyncError()
      : std::runtime_error(
            "The associated promise has been destructed prior to the associated state becoming "
            "ready.") {}
};

}  // namespace torchbeast
