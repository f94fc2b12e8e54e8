#include "wire/spec.h"

#include <algorithm>
#include <utility>

namespace torchbeast {

namespace {

SpecNest DecodeNode(const rpcenv::Spec& spec) {
  auto decode_all = [](const auto& items) {
    SpecNest::Sequence nests;
    for (const rpcenv::Spec& item : items) nests.push_back(DecodeNode(item));
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
  if (spec.ByteSizeLong() > kMaxSpecBytes) {
    throw WireError("observation whose structure has more than " + std::to_string(kMaxSpecBytes) +
                    " bytes");
  }
  SpecNest result = DecodeNode(spec);
  if (result.empty()) throw WireError("observation without arrays");
  return result;
}

std::string ToString(const LeafSpec& spec) { return Name(spec.dtype) + spec.shape.ToString(); }

}  // namespace torchbeast
