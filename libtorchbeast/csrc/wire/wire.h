// Between nests of tensors and the messages of rpcenv.proto.
//
// StepEncoder (server) and StepDecoder (client) hold the two ends of one stream. A frame stack is
// sent as its newest plane only: the encoder compares each array with the last one and leaves out
// planes only if they are the last one's, shifted by one, to the byte.
// Neither class is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "rpcenv.pb.h"
#include "wire/spec.h"

namespace torchbeast {

inline constexpr uint32_t kProtocolVersion = 5;
inline constexpr uint32_t kMaxEnvironmentsPerStream = 1024;

class StepEncoder {
 public:
  explicit StepEncoder(int64_t num_environments) : num_environments_(num_environments) {}

  // Clears `reply` for the next step.
  void Begin(rpcenv::Reply* reply);
  // WireError, naming the array, if `observation` has numbers that are not finite, or differs from
  // the first one in structure, type or shape. The first call fixes these.
  void Check(const TensorNest& observation);
  // Appends the observation of the next environment in turn, after Check(). `episode_start`: its
  // planes are not a continuation.
  void Append(const TensorNest& observation, bool episode_start, rpcenv::Reply* reply);
  // Valid after the first Check().
  const SpecNest& spec() const { return spec_; }

 private:
  struct LeafState {
    bool try_newest_only = false;
    // Per environment the planes that the client has, as a ring: the oldest is at `oldest`.
    struct Planes {
      std::string data;
      int64_t oldest = 0;
    };
    std::vector<Planes> previous;
  };
  void FixSchema(const TensorNest& observation);
  // Makes `data` the previous stack. Returns whether it is the old one shifted by one plane.
  static bool ReplacePlanes(LeafState::Planes* previous, const char* data, int64_t num_planes,
                            int64_t plane_bytes);

  const int64_t num_environments_;
  int64_t next_environment_ = 0;
  SpecNest spec_;
  std::vector<LeafSpec> leaf_specs_;
  std::vector<LeafState> leaves_;
};

class StepDecoder {
 public:
  // Takes the schema of a stream's first reply. WireError if there is none.
  StepDecoder(int64_t num_environments, const rpcenv::Reply& first);

  // WireError if a size in `reply` disagrees with the schema, or a reward or an array is not
  // finite.
  void Check(const rpcenv::Reply& reply) const;
  // Writes leaf `leaf` of environment `environment` to `target`. `previous`: that leaf one step
  // earlier, null if there is none; WireError if it is needed and missing. After Check().
  void ReadLeaf(const rpcenv::Reply& reply, int leaf, int64_t environment,
                const std::byte* previous, std::byte* target) const;

  const SpecNest& spec() const { return spec_; }
  int32_t task() const { return task_; }
  const std::string& environment() const { return environment_; }

 private:
  const int64_t num_environments_;
  const SpecNest spec_;
  const std::vector<LeafSpec> leaf_specs_;
  const int32_t task_;
  const std::string environment_;
};

}  // namespace torchbeast
