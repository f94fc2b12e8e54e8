// Type and shape of the observations that travel, and the limits on both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/tensor.h"
#include "nest/nest.h"
#include "rpcenv.pb.h"

namespace torchbeast {

// Far above any observation. gRPC parses a message before anything in it can be checked, and what
// is parsed may take 32 times as much memory: empty submessages are 2 bytes long. So a hostile peer
// can take 8 GiB with one message.
inline constexpr int kMaxMessageBytes = 256 << 20;
// The largest request: at most 1024 actions of 10 bytes, and little else.
inline constexpr int kMaxRequestBytes = 64 << 10;
// Dimensions of an array; time and batch come in front.
inline constexpr int kMaxSpecRank = 6;
// The largest encoded structure of an observation: its arrays and keys, of which each row of each
// rollout has a copy. protobuf bounds how deep it is nested.
inline constexpr size_t kMaxSpecBytes = 64 << 10;

// A message that does not follow the protocol; the text says how.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Type and shape of one environment's array.
struct LeafSpec {
  // Type of the elements.
  DType dtype = DType::kUint8;
  // Without time and batch dimensions.
  Shape shape;

  int64_t NumBytes() const { return shape.NumElements() * ItemSize(dtype); }
  bool operator==(const LeafSpec& o) const { return dtype == o.dtype && shape == o.shape; }
};
using SpecNest = nest::Nest<LeafSpec>;

rpcenv::ArraySpec EncodeArraySpec(const LeafSpec& spec);
// WireError for an unknown type, a bad rank, a negative dimension or more than kMaxMessageBytes,
// where empty dimensions count as one.
LeafSpec DecodeArraySpec(const rpcenv::ArraySpec& spec);
rpcenv::Spec EncodeSpec(const SpecNest& spec);
// WireError also for no arrays, or more than kMaxSpecBytes.
SpecNest DecodeSpec(const rpcenv::Spec& spec);
// "uint8[4, 84, 84]".
std::string ToString(const LeafSpec& spec);

}  // namespace torchbeast
