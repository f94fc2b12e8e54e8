// libFuzzer on the client's end: replies of a server that may send anything, with schemas and sizes
// that mostly agree.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pool/rollout.h"
#include "wire/wire.h"

namespace torchbeast {
namespace {

constexpr int kUnrollLength = 2;
// Small: many inputs run in a second.
constexpr int64_t kMaxRowBytes = 1 << 16;

void MakeSpec(FuzzedDataProvider* data, int depth, rpcenv::Spec* spec) {
  const int num_items = depth == 0 ? 0 : data->ConsumeIntegralInRange(0, 3);
  if (num_items == 0) {
    rpcenv::ArraySpec* array = spec->mutable_array();
    array->set_dtype(static_cast<rpcenv::DType>(data->ConsumeIntegralInRange(0, 11)));
    for (int rank = data->ConsumeIntegralInRange(0, 7); rank > 0; --rank) {
      array->add_shape(data->ConsumeProbability<float>() < 0.9F
                           ? data->ConsumeIntegralInRange<int64_t>(0, 4)
                           : data->ConsumeIntegral<int64_t>());
    }
    return;
  }
  if (data->ConsumeBool()) {
    for (int i = 0; i < num_items; ++i) {
      MakeSpec(data, depth - 1, spec->mutable_sequence()->add_items());
    }
    return;
  }
  for (int i = 0; i < num_items; ++i) {
    spec->mutable_mapping()->add_keys(std::string(1, data->ConsumeIntegralInRange('a', 'd')));
    MakeSpec(data, depth - 1, spec->mutable_mapping()->add_items());
  }
}

// Values of each environment; now and then one too few.
template <typename Values>
void Fill(FuzzedDataProvider* data, int64_t num_environments, Values* values) {
  const bool is_short = data->ConsumeProbability<float>() > 0.98F;
  for (int64_t e = is_short; e < num_environments; ++e)
    values->Add(data->ConsumeIntegral<int8_t>());
}

void MakeStep(FuzzedDataProvider* data, int64_t num_environments,
              const std::vector<LeafSpec>& leaf_specs, rpcenv::Reply* reply) {
  for (const LeafSpec& spec : leaf_specs) {
    rpcenv::Leaf* leaf = reply->add_leaves();
    size_t size = 0;
    const int64_t num_planes = spec.shape.rank() > 0 ? spec.shape[0] : 1;
    const bool has_flags = data->ConsumeBool();
    for (int64_t e = 0; e < num_environments; ++e) {
      const bool newest_only = has_flags && data->ConsumeBool();
      if (has_flags) leaf->mutable_newest_only()->push_back(static_cast<char>(newest_only));
      size += spec.NumBytes() / (newest_only ? std::max<int64_t>(1, num_planes) : 1);
    }
    if (data->ConsumeProbability<float>() > 0.98F) size = data->ConsumeIntegral<uint8_t>();
    *leaf->mutable_data() = data->ConsumeBytesAsString(size);
    leaf->mutable_data()->resize(size);
  }
  Fill(data, num_environments, reply->mutable_reward());
  Fill(data, num_environments, reply->mutable_done());
  Fill(data, num_environments, reply->mutable_truncated());
  Fill(data, num_environments, reply->mutable_game_over());
  Fill(data, num_environments, reply->mutable_episode_step());
  Fill(data, num_environments, reply->mutable_episode_return());
}

void Run(FuzzedDataProvider* data) {
  const auto num_environments = data->ConsumeIntegralInRange<int64_t>(1, 4);
  rpcenv::Reply reply;
  MakeSpec(data, /*depth=*/3, reply.mutable_schema()->mutable_observation());
  const StepDecoder decoder(num_environments, reply);
  int64_t row_bytes = 0;
  for (const LeafSpec& leaf : decoder.spec().flatten()) row_bytes += leaf.NumBytes();
  if (row_bytes > kMaxRowBytes) return;
  auto buffers = std::make_shared<BufferPool>();
  std::vector<Rollout> rollouts;
  for (int64_t e = 0; e < num_environments; ++e) {
    rollouts.emplace_back(kUnrollLength, decoder.spec(), buffers);
  }
  for (int row = 0; data->remaining_bytes() > 0; ++row) {
    if (row > kUnrollLength) {
      for (Rollout& rollout : rollouts) {
        rollout.Finish();
        rollout.StartNext();
      }
      row = 1;
    }
    reply.Clear();
    MakeStep(data, num_environments, decoder.spec().flatten(), &reply);
    decoder.Check(reply);
    std::vector<TensorNest> outputs;
    for (int64_t e = 0; e < num_environments; ++e) {
      rollouts[e].WriteEnvOutput(row, decoder, reply, e, /*last_action=*/0);
      outputs.push_back(rollouts[e].EnvOutput(row));
    }
    Concatenate(outputs, /*dim=*/1, *buffers);  // As inference does.
  }
}

}  // namespace
}  // namespace torchbeast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  try {
    torchbeast::Run(&data);
  } catch (const torchbeast::WireError&) {
  }
  return 0;
}
