// A call that an environment server answers, from waiting for a client to its end.
#pragma once

namespace torchbeast {

class ServerCall {
 public:
  enum class Operation { kAccept, kRead, kWrite, kFinish };
  static constexpr int kNumOperations = 4;
  // What the completion queue returns for an operation.
  struct Tag {
    ServerCall* call = nullptr;
    Operation operation = Operation::kAccept;
  };

  ServerCall() {
    for (int i = 0; i < kNumOperations; ++i) tags_[i] = {this, static_cast<Operation>(i)};
  }
  virtual ~ServerCall() = default;
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // Takes in a completed operation. Returns whether the call is over: no operation is under way and
  // none will be. Throws Interrupted.
  virtual bool OnCompletion(Operation operation, bool ok) = 0;
  // Frees what the call holds. Throws Interrupted.
  virtual void Close() {}

 protected:
  Tag* TagOf(Operation operation) { return &tags_[static_cast<int>(operation)]; }

 private:
  Tag tags_[kNumOperations];
};

}  // namespace torchbeast
