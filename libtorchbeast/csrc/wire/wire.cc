#include "wire/wire.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace torchbeast {

namespace {

// A frame stack has between two and this many planes.
constexpr int64_t kMaxPlanes = 64;

// The size of one plane along the first axis.
int64_t PlaneBytes(const LeafSpec& spec) { return spec.NumBytes() / spec.shape[0]; }

bool MayBeFrameStack(const LeafSpec& spec) {
  return spec.dtype == DType::kUint8 && spec.shape.rank() == 3 && spec.shape[0] >= 2 &&
         spec.shape[0] <= kMaxPlanes && spec.NumBytes() > 0;
}

const rpcenv::Schema& SchemaOf(const rpcenv::Reply& reply) {
  if (!reply.has_schema()) throw WireError("first reply without schema");
  return reply.schema();
}

}  // namespace

void StepEncoder::Begin(rpcenv::Reply* reply) {
  reply->Clear();  // Keeps the memory of the leaves for those that Append() adds.
  next_environment_ = 0;
}

void StepEncoder::FixSchema(const TensorNest& observation) {
  // Exactly what the client accepts.
  spec_ = DecodeSpec(EncodeSpec(observation.map([](const Tensor& tensor) {
    return LeafSpec{tensor.dtype, tensor.shape};
  })));
  leaf_specs_ = spec_.flatten();
  leaves_.resize(leaf_specs_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    leaves_[i].try_newest_only = MayBeFrameStack(leaf_specs_[i]);
    leaves_[i].previous.resize(num_environments_);
  }
}

bool StepEncoder::ReplacePlanes(LeafState::Planes* previous, const char* data, int64_t num_planes,
                                int64_t plane_bytes) {
  bool is_shifted = !previous->data.empty();
  for (int64_t i = 0; is_shifted && i + 1 < num_planes; ++i) {
    const int64_t same = (previous->oldest + 1 + i) % num_planes;
    is_shifted = std::memcmp(previous->data.data() + same * plane_bytes, data + i * plane_bytes,
                             plane_bytes) == 0;
  }
  if (is_shifted) {  // The newest takes the place of the oldest.
    std::memcpy(previous->data.data() + previous->oldest * plane_bytes,
                data + (num_planes - 1) * plane_bytes, plane_bytes);
    previous->oldest = (previous->oldest + 1) % num_planes;
  } else {
    previous->data.assign(data, num_planes * plane_bytes);
    previous->oldest = 0;
  }
  return is_shifted;
}

void StepEncoder::Check(const TensorNest& observation) {
  if (leaf_specs_.empty()) FixSchema(observation);
  try {
    spec_.check_same_structure(observation);
  } catch (const nest::NestError& error) {
    throw WireError("its observation differs from the first one: " + std::string(error.what()));
  }
  size_t index = 0;
  observation.for_each([&](const Tensor& tensor) {
    const LeafSpec& expected = leaf_specs_[index];
    if (tensor.dtype != expected.dtype || tensor.shape != expected.shape) {
      throw WireError("its observation" + spec_.path_of(index) + " is " +
                      ToString({tensor.dtype, tensor.shape}) + ", the first one was " +
                      ToString(expected));
    }
    // It would make the network's output no number, too.
    if (!HasValidValues(tensor.dtype, tensor.data, tensor.shape.NumElements())) {
      throw WireError("its observation" + spec_.path_of(index) + " is not finite");
    }
    ++index;
  });
}

void StepEncoder::Append(const TensorNest& observation, bool episode_start, rpcenv::Reply* reply) {
  while (static_cast<size_t>(reply->leaves_size()) < leaves_.size()) reply->add_leaves();

  int index = 0;
  observation.for_each([&](const Tensor& tensor) {
    const LeafSpec& spec = leaf_specs_[index];
    LeafState& state = leaves_[index];
    rpcenv::Leaf& leaf = *reply->mutable_leaves(index);
    ++index;
    const char* data = reinterpret_cast<const char*>(tensor.data);
    const int64_t bytes = spec.NumBytes();
    bool newest_only = false;
    if (state.try_newest_only) {
      const int64_t plane = PlaneBytes(spec);
      LeafState::Planes& previous = state.previous[next_environment_];
      const bool has_previous = !previous.data.empty();
      newest_only = ReplacePlanes(&previous, data, spec.shape[0], plane);
      // In mid-episode a stack moves by exactly one plane; what does not is no stack.
      if (!newest_only && has_previous && !episode_start) state.try_newest_only = false;
    }
    const int64_t skip = newest_only ? bytes - PlaneBytes(spec) : 0;
    leaf.mutable_data()->append(data + skip, bytes - skip);
    if (newest_only) leaf.mutable_newest_only()->resize(num_environments_, '\0');
    if (newest_only) (*leaf.mutable_newest_only())[next_environment_] = '\1';
  });
  ++next_environment_;
}

StepDecoder::StepDecoder(int64_t num_environments, const rpcenv::Reply& first)
    : num_environments_(num_environments),
      spec_(DecodeSpec(SchemaOf(first).observation())),
      leaf_specs_(spec_.flatten()),
      task_(first.schema().task()),
      environment_(first.schema().environment()) {
  if (task_ < 0) throw WireError("negative task");
}

void StepDecoder::Check(const rpcenv::Reply& reply) const {
  auto expect = [this](int64_t size, const char* field) {
    if (size != num_environments_) {
      throw WireError(std::string(field) + " for " + std::to_string(size) + " of " +
                      std::to_string(num_environments_) + " environments");
    }
  };
  expect(reply.reward_size(), "reward");
  expect(reply.done_size(), "done");
  expect(reply.truncated_size(), "truncated");
  expect(reply.game_over_size(), "game_over");
  expect(reply.episode_step_size(), "episode_step");
  expect(reply.episode_return_size(), "episode_return");
  // A number that is not finite would make the network's output no number, too.
  for (const auto* numbers : {&reply.reward(), &reply.episode_return()}) {
    for (float number : *numbers) {
      if (!std::isfinite(number)) throw WireError("reward or return of " + std::to_string(number));
    }
  }
  if (static_cast<size_t>(reply.leaves_size()) != leaf_specs_.size()) {
    throw WireError("expected " + std::to_string(leaf_specs_.size()) + " arrays, got " +
                    std::to_string(reply.leaves_size()));
  }
  for (int i = 0; i < reply.leaves_size(); ++i) {
    const rpcenv::Leaf& leaf = reply.leaves(i);
    const LeafSpec& spec = leaf_specs_[i];
    int64_t newest_only = 0;
    if (!leaf.newest_only().empty()) {
      expect(static_cast<int64_t>(leaf.newest_only().size()), "newest_only");
      if (!MayBeFrameStack(spec)) throw WireError("newest plane of an array that has no planes");
      newest_only =
          static_cast<int64_t>(std::count_if(leaf.newest_only().begin(), leaf.newest_only().end(),
                                             [](char flag) { return flag != 0; }));
    }
    int64_t expected = num_environments_ * spec.NumBytes();
    if (newest_only > 0) expected -= newest_only * (spec.NumBytes() - PlaneBytes(spec));
    if (static_cast<int64_t>(leaf.data().size()) != expected) {
      throw WireError("array " + std::to_string(i) + ": expected " + std::to_string(expected) +
                      " bytes, got " + std::to_string(leaf.data().size()));
    }
    if (!HasValidValues(spec.dtype, leaf.data().data(), expected / ItemSize(spec.dtype))) {
      throw WireError("array " + std::to_string(i) + " has invalid values");
    }
  }
}

void StepDecoder::ReadLeaf(const rpcenv::Reply& reply, int leaf_index, int64_t environment,
                           const std::byte* previous, std::byte* target) const {
  const rpcenv::Leaf& leaf = reply.leaves(leaf_index);
  const LeafSpec& spec = leaf_specs_[leaf_index];
  const int64_t bytes = spec.NumBytes();
  if (leaf.newest_only().empty()) {
    std::memcpy(target, leaf.data().data() + environment * bytes, bytes);
    return;
  }
  const int64_t plane = PlaneBytes(spec);
  int64_t offset = 0;
  for (int64_t i = 0; i < environment; ++i) offset += leaf.newest_only()[i] ? plane : bytes;
  const char* source = leaf.data().data() + offset;
  if (!leaf.newest_only()[environment]) {
    std::memcpy(target, source, bytes);
    return;
  }
  if (previous == nullptr) throw WireError("newest plane without earlier planes");
  std::memcpy(target, previous + plane, bytes - plane);
  std::memcpy(target + bytes - plane, source, plane);
}

}  // namespace torchbeast
