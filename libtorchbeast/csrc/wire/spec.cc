#include "wire/spec.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace torchbeast {

namespace {

constexpr int kMaxSpecDepth = 32;

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

// `num_nodes` counts down to the end of what is accepted.
SpecNest DecodeSpecAt(const rpcenv::Spec& spec, int depth, int* num_nodes) {
  if (depth > kMaxSpecDepth) throw WireError("observation is nested too deeply");
  if (--*num_nodes < 0) {
    throw WireError("observation of more than " + std::to_string(kMaxLeaves) + " arrays");
  }
  auto decode_all = [&](const auto& items) {
    SpecNest::Sequence nests;
    for (const rpcenv::Spec& item : items) {
      nests.push_back(DecodeSpecAt(item, depth + 1, num_nodes));
    }
    return nests;
  };
  switch (spec.node_case()) {
    case rpcenv::Spec::kArray:
      return SpecNest(DecodeArraySpec(spec.array()));
    case rpcenv::Spec::kSequence:
      return SpecNest(decode_all(spec.sequence().items()));
    case rpcenv::Spec::kMapping: {
      const auto& mapping = spec.mapping();
      if (mapping.keys_size() != mapping.items_size()) {
        throw WireError("mapping with " + std::to_string(mapping.keys_size()) + " keys and " +
                        std::to_string(mapping.items_size()) + " items");
      }
      SpecNest::Sequence items = decode_all(mapping.items());
      SpecNest::Mapping nests;
      for (int i = 0; i < mapping.keys_size(); ++i) {
        // The order of the leaves depends on it.
        if (i > 0 && mapping.keys(i - 1) >= mapping.keys(i)) throw WireError("unsorted mapping");
        nests.emplace(mapping.keys(i), std::move(items[i]));
      }
      return SpecNest(std::move(nests));
    }
    default:
      throw WireError("observation without structure");
  }
}

size_t KeyBytes(const SpecNest& spec) {
  size_t bytes = 0;
  if (spec.is_sequence()) {
    for (const SpecNest& item : spec.sequence()) bytes += KeyBytes(item);
  } else if (spec.is_mapping()) {
    for (const auto& [key, item] : spec.mapping()) bytes += key.size() + KeyBytes(item);
  }
  return bytes;
}

// WireError unless there are 1 to kMaxLeaves arrays, and keys of at most kMaxKeyBytes.
void CheckLimits(const SpecNest& spec) {
  const size_t count = spec.num_leaves();
  if (count == 0) throw WireError("observation without arrays");
  if (count > static_cast<size_t>(kMaxLeaves)) {
    throw WireError("observation of more than " + std::to_string(kMaxLeaves) + " arrays");
  }
  if (KeyBytes(spec) > kMaxKeyBytes) {
    throw WireError("observation whose keys have more than " + std::to_string(kMaxKeyBytes) +
                    " bytes");
  }
}

}  // namespace

rpcenv::ArraySpec EncodeArraySpec(const LeafSpec& spec) {
  rpcenv::ArraySpec result;
  result.set_dtype(static_cast<rpcenv::DType>(static_cast<int>(spec.dtype) + 1));
  for (int64_t dim : spec.shape) result.add_shape(dim);
  return result;
}

LeafSpec DecodeArraySpec(const rpcenv::ArraySpec& spec) {
  if (spec.dtype() <= rpcenv::DTYPE_INVALID || spec.dtype() > rpcenv::DTYPE_FLOAT64) {
    throw WireError("unknown element type " + std::to_string(spec.dtype()));
  }
  if (spec.shape_size() > kMaxSpecRank) {
    throw WireError("array of " + std::to_string(spec.shape_size()) + " dimensions");
  }
  LeafSpec result;
  result.dtype = static_cast<DType>(static_cast<int>(spec.dtype()) - 1);
  // An empty dimension counts as one: the strides of an empty array must not overflow either.
  int64_t bytes = ItemSize(result.dtype);
  for (int64_t dim : spec.shape()) {
    if (dim < 0) throw WireError("negative dimension");
    if (dim > kMaxMessageBytes || bytes * dim > kMaxMessageBytes) {
      throw WireError("array of more than " + std::to_string(kMaxMessageBytes) + " bytes");
    }
    bytes *= std::max<int64_t>(dim, 1);
    result.shape.Append(dim);
  }
  return result;
}

rpcenv::Spec EncodeSpec(const SpecNest& spec) {
  rpcenv::Spec result;
  if (spec.is_leaf()) {
    *result.mutable_array() = EncodeArraySpec(spec.leaf());
  } else if (spec.is_sequence()) {
    auto* sequence = result.mutable_sequence();
    for (const SpecNest& item : spec.sequence()) *sequence->add_items() = EncodeSpec(item);
  } else {
    auto* mapping = result.mutable_mapping();
    for (const auto& [key, item] : spec.mapping()) {
      mapping->add_keys(key);
      *mapping->add_items() = EncodeSpec(item);
    }
  }
  return result;
}

SpecNest DecodeSpec(const rpcenv::Spec& spec) {
  int num_nodes = 2 * kMaxLeaves;  // Containers included.
  SpecNest result = DecodeSpecAt(spec, 0, &num_nodes);
  CheckLimits(result);
  return result;
}

std::string ToString(const LeafSpec& spec) { return Name(spec.dtype) + spec.shape.ToString(); }

Actions DecodeActions(const rpcenv::Request& request, int64_t num_environments) {
  Actions actions;
  actions.spec = DecodeArraySpec(request.action_spec());
  const int64_t expected = num_environments * actions.spec.NumBytes();
  if (static_cast<int64_t>(request.actions().size()) != expected) {
    throw WireError("expected " + std::to_string(expected) + " bytes of actions, got " +
                    std::to_string(request.actions().size()));
  }
  actions.data = reinterpret_cast<const std::byte*>(request.actions().data());
  return actions;
}

std::optional<int64_t> SingleInteger(const LeafSpec& spec, const std::byte* data) {
  if (spec.shape.NumElements() != 1) return std::nullopt;
  switch (spec.dtype) {
    case DType::kUint8:
      return Load<uint8_t>(data);
    case DType::kInt8:
      return Load<int8_t>(data);
    case DType::kInt16:
      return Load<int16_t>(data);
    case DType::kInt32:
      return Load<int32_t>(data);
    case DType::kInt64:
      return Load<int64_t>(data);
    default:
      return std::nullopt;
  }
}

}  // namespace torchbeast
