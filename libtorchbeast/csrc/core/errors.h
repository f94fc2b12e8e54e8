// What can go wrong. ClosedBatchingQueue and AsyncError have the same names in Python.
#pragma once

#include <stdexcept>
#include <string>

namespace torchbeast {

// The queue (or batcher) is closed: an item was put in, or its outputs were still awaited.
class ClosedBatchingQueue : public std::runtime_error {
 public:
  explicit ClosedBatchingQueue(const char* what = "Enqueue to closed queue")
      : std::runtime_error(what) {}
};

// A batch of inference inputs was dropped without outputs.
class AsyncError : public std::runtime_error {
 public:
  AsyncError()
      : std::runtime_error(
            "The associated promise has been destructed prior to the associated state becoming "
            "ready.") {}
};

// The run ends because of a server. The message may contain bytes that the server sent.
class ServerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Why a stream to an environment server ended, and what follows from it.
class StreamError : public std::runtime_error {
 public:
  enum class Remedy {
    // Connect again: the server is away, or stuck. Without an answered step for the connect timeout
    // it may end the run.
    kReconnect,
    // Connect again, at another address: nothing is wrong.
    kMove,
    // End the run: the two sides do not fit together, or the server breaks the protocol. Trying
    // again would not help.
    kEndRun,
  };

  StreamError(Remedy remedy, const std::string& what) : std::runtime_error(what), remedy_(remedy) {}
  Remedy remedy() const { return remedy_; }

 private:
  Remedy remedy_;
};

}  // namespace torchbeast
