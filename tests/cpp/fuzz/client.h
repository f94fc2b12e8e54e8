// A client's end of a stream without gRPC: takes replies as Actor does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "pool/actor_options.h"
#include "pool/recovery.h"
#include "pool/rollout.h"
#include "rpcenv.pb.h"
#include "wire/wire.h"

namespace torchbeast {

// Throws std::logic_error, which no fuzzer expects, unless `condition`.
void Require(bool condition, const std::string& what);

class FuzzClient {
 public:
  // One environment's arrays, each in a block of exactly its size: the address sanitizer sees what
  // goes beyond. Rollouts have their rows side by side.
  using Row = std::vector<std::unique_ptr<std::byte[]>>;

  explicit FuzzClient(int64_t num_environments);

  // Returns whether the stream is to continue. WireError for a reply that does not follow the
  // protocol.
  bool Take(const rpcenv::Reply& reply);
  // The newest observation of `environment`, once a reply has been taken.
  const Row& row(int64_t environment) const { return rows_[environment]; }

 private:
  bool TakeFirst(const rpcenv::Reply& reply);
  void Write(const rpcenv::Reply& reply);
  void WriteOne(const rpcenv::Reply& reply, int64_t environment);

  const StreamOptions stream_;
  const ActorOptions options_;
  Recovery recovery_;
  std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();
  std::unique_ptr<StepDecoder> decoder_;
  std::vector<LeafSpec> leaf_specs_;
  std::vector<Rollout> rollouts_;
  std::vector<Row> rows_;
  int64_t row_ = 0;
};

}  // namespace torchbeast
