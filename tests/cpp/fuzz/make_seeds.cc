// Writes the inputs that the fuzzers start from: `make_seeds DIRECTORY` fills DIRECTORY/reply and
// DIRECTORY/request.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "echo_environment.h"
#include "input.h"
#include "rpcenv.pb.h"
#include "wire/wire.h"

namespace torchbeast {
namespace {

using Order = EchoEnvironment::Order;
using Bits = EchoEnvironment::Bits;

void Save(const std::filesystem::path& directory, const std::string& name, const FuzzInput& input) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / name, std::ios::binary) << Join(input);
}

// Both sides of a stream of `num_environments` that takes `steps`, each the first byte of all its
// actions.
void SaveStream(const std::filesystem::path& directory, const std::string& name,
                int64_t num_environments, bool newest_plane, const LeafSpec& action,
                const std::vector<uint8_t>& steps) {
  FuzzInput requests;
  FuzzInput replies;
  replies.options = static_cast<uint8_t>(num_environments - 1);
  rpcenv::Reply reply;
  rpcenv::Request request;
  auto* open = request.mutable_open();
  open->set_protocol_version(kProtocolVersion);
  open->set_num_environments(static_cast<uint32_t>(num_environments - 1));
  open->set_newest_plane(newest_plane);
  requests.messages.push_back(request.SerializeAsString());
  EnvironmentBatch batch(EchoEnvironments(), num_environments, newest_plane);
  try {
    batch.Open(&reply);
    replies.messages.push_back(reply.SerializeAsString());
    request.clear_open();
    *request.mutable_action_spec() = EncodeArraySpec(action);
    for (uint8_t step : steps) {
      std::string bytes(action.NumBytes(), '\0');
      if (!bytes.empty()) bytes[0] = static_cast<char>(step);
      request.clear_actions();
      for (int64_t e = 0; e < num_environments; ++e) request.mutable_actions()->append(bytes);
      request.set_step(request.step() + 1);
      requests.messages.push_back(request.SerializeAsString());
      batch.Step(DecodeActions(request, num_environments), &reply);
      reply.set_step(request.step());
      replies.messages.push_back(reply.SerializeAsString());
    }
  } catch (const EnvironmentFailure& error) {
    reply.Clear();
    *reply.mutable_fatal() = error.failure();
    replies.messages.push_back(reply.SerializeAsString());
  } catch (const Interrupted&) {
  }
  Save(directory / "request", name, requests);
  Save(directory / "reply", name, replies);
}

// Two replies with an observation of this structure, for one environment.
void SaveObservation(const std::filesystem::path& directory, const std::string& name,
                     const SpecNest& spec) {
  BufferPool buffers;
  StepEncoder encoder(1, /*newest_plane=*/true);
  const TensorNest observation = spec.map([&](const LeafSpec& leaf) {
    Tensor tensor = buffers.Empty(leaf.dtype, leaf.shape);
    std::memset(tensor.data, 1, tensor.NumBytes());
    return tensor;
  });
  FuzzInput replies;
  rpcenv::Reply reply;
  for (int step = 0; step < 2; ++step) {
    encoder.Begin(&reply);
    encoder.Check(observation);
    encoder.Append(observation, step == 0, &reply);
    if (step == 0) *reply.mutable_schema()->mutable_observation() = EncodeSpec(encoder.spec());
    reply.add_reward(1.0F);
    reply.add_done(false);
    reply.add_truncated(true);
    reply.add_game_over(false);
    reply.add_episode_step(step);
    reply.add_episode_return(1.0F);
    replies.messages.push_back(reply.SerializeAsString());
  }
  Save(directory / "reply", name, replies);
}

void SaveAll(const std::filesystem::path& directory) {
  const LeafSpec number{DType::kInt64, {}};
  const std::vector<uint8_t> episode = {
      0, 16, Bits::kTerminated | Bits::kGameOver, Bits::kTruncated, 32, Bits::kNewPlanes, 64};
  SaveStream(directory, "episode", 1, true, number, episode);
  SaveStream(directory, "whole_frames", 1, false, number, episode);
  SaveStream(directory, "three_environments", 3, true, number, episode);
  SaveStream(directory, "several_numbers", 2, true, LeafSpec{DType::kFloat32, {2, 3}}, episode);
  SaveStream(directory, "no_numbers", 2, true, LeafSpec{DType::kInt8, {0}}, episode);
  const std::pair<const char*, Order> failures[] = {{"failure", Order::kFail},
                                                    {"fatal_failure", Order::kFailForGood},
                                                    {"not_a_number", Order::kNotANumber},
                                                    {"huge_reward", Order::kHugeReward},
                                                    {"other_shape", Order::kOtherShape},
                                                    {"interrupt", Order::kInterrupt}};
  for (const auto& [name, order] : failures) {
    SaveStream(directory, name, 2, true, LeafSpec{DType::kUint8, {3}}, {0, order, 0, order});
  }

  SpecNest::Sequence all_types;
  for (int type = 0; type <= static_cast<int>(DType::kFloat64); ++type) {
    all_types.push_back(LeafSpec{static_cast<DType>(type), {2}});
  }
  SaveObservation(directory, "all_types", SpecNest(all_types));
  SaveObservation(directory, "six_dimensions", LeafSpec{DType::kInt16, {1, 2, 1, 2, 1, 2}});
  SaveObservation(directory, "no_elements", LeafSpec{DType::kFloat32, {3, 0, 1 << 20}});
  SaveObservation(directory, "huge_strides",
                  LeafSpec{DType::kUint8, {0, 1 << 28, 1 << 28, 1 << 28}});
  SaveObservation(directory, "many_planes", LeafSpec{DType::kUint8, {64, 1, 1}});
  SpecNest nested = LeafSpec{DType::kBool, {}};
  for (int depth = 0; depth < 8; ++depth) {
    nested = SpecNest(SpecNest::Mapping{{"a", nested}, {"b", SpecNest(SpecNest::Sequence{})}});
  }
  SaveObservation(directory, "nested", nested);
}

}  // namespace
}  // namespace torchbeast

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torchbeast::SaveAll(argv[1]);
}
