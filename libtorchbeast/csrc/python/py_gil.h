// Taking and giving up the GIL where the interpreter may be ending.
//
// A thread that asks for the GIL of an ending interpreter is unwound by Python, through C++ frames
// that do not expect it: the process aborts. So calls that wait are ended at exit, before Python
// finalizes, and threads that come too late stop for ever, also those that lose the GIL inside of
// Python code; the process ends without them.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

namespace torchbeast {

// Whether another thread ends the interpreter: this one must not ask for the GIL any more.
bool TooLateForGil();

// Holds the GIL in a scope. Never returns from the constructor if it is too late for that.
class GilLock {
 public:
  GilLock();
  ~GilLock();
  GilLock(const GilLock&) = delete;
  GilLock& operator=(const GilLock&) = delete;

 private:
  PyGILState_STATE state_;
};

[[noreturn]] void StopForEver();

// Returns function() with the GIL, which Python code in it may give up and take again.
template <typename Function>
auto WithGil(Function&& function) -> decltype(function()) {
  GilLock gil;
#ifdef __GLIBCXX__
  try {
    return function();
  } catch (const abi::__forced_unwind&) {
    // Python ends this thread, which has no GIL to release. The exception must not be swallowed.
    StopForEver();
  }
#else
  return function();
#endif
}

// Gives the GIL up in a scope that may wait long. At exit Python waits, a short time, for all such
// scopes to end.
class BlockingCall {
 public:
  BlockingCall();
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

 private:
  PyThreadState* state_;
};

using NoGil = nanobind::call_guard<BlockingCall>;

// Lets Ctrl-C through to a waiting main thread, and ends waits with SystemExit when Python exits.
// To be called without the GIL; see sync.h's Poll.
void CheckSignals();

// Prints an exception that nobody can handle. Ctrl-C is not lost: whoever polls, or takes the GIL,
// next gets it.
void Discard(nanobind::python_error& error, const char* where);

// Deletes `object` with the GIL. Keeps it for ever if it is too late for that.
template <typename T>
void DeleteWithGil(T* object) {
  if (!nanobind::is_alive() || TooLateForGil()) return;
  WithGil([object] { delete object; });
}

// Registers what must be done at exit.
void BindExit(nanobind::module_& m);

}  // namespace torchbeast
