// An environment for the fuzzers: what it returns and how it fails follows from its actions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/tensor.h"
#include "server/environment_batch.h"

namespace torchbeast {

// Observation: {"frame": uint8[4, 2, 3], a stack of planes, "sum": (int32[], the sum of the frame's
// bytes, float64[0])}.
//
// The first byte of an action says what the environment does, if it is one of Order; else its
// lowest bits say how the episode goes on.
class EchoEnvironment final : public Environment {
 public:
  static constexpr int kNumPlanes = 4;
  static constexpr int kPlaneBytes = 6;
  static constexpr int kFrameBytes = kNumPlanes * kPlaneBytes;
  enum Order : uint8_t {
    kFail = 0xF0,         // Throws the bytes of the action.
    kFailForGood = 0xF1,  // The environments that follow fail, too.
    kNotANumber = 0xF2,   // As the reward.
    kHugeReward = 0xF3,   // Finite only in double precision.
    kOtherShape = 0xF4,   // Another observation than before.
    kInterrupt = 0xF5,
  };
  enum Bits : uint8_t { kTerminated = 1, kTruncated = 2, kGameOver = 4, kNewPlanes = 8 };

  // `broken`, which a batch's environments share: whether the next ones fail.
  explicit EchoEnvironment(std::shared_ptr<bool> broken) : broken_(std::move(broken)) {}

  TensorNest Reset() override {
    if (*broken_) throw std::runtime_error("broken");
    std::memset(frame_, 1, sizeof(frame_));
    return Observe(kNumPlanes);
  }

  Result Step(const LeafSpec& spec, const std::byte* action) override {
    // Every byte: the address sanitizer sees an action that is shorter than its type and shape say.
    const std::string bytes(reinterpret_cast<const char*>(action), spec.NumBytes());
    uint8_t hash = 0;
    for (char byte : bytes) hash = static_cast<uint8_t>(hash * 31 + static_cast<uint8_t>(byte));
    const auto order = bytes.empty() ? uint8_t{0} : static_cast<uint8_t>(bytes[0]);
    if (order == kInterrupt) throw Interrupted{};
    if (order == kFailForGood) *broken_ = true;
    if (order == kFail || order == kFailForGood) throw std::runtime_error(bytes);

    std::memmove(frame_, frame_ + kPlaneBytes, kFrameBytes - kPlaneBytes);
    std::memset(frame_ + kFrameBytes - kPlaneBytes, hash, kPlaneBytes);
    if (order & kNewPlanes) std::memset(frame_, hash, kFrameBytes - 1);
    Result result;
    result.reward = hash - 128.0;
    if (order == kNotANumber) result.reward = std::nan("");
    if (order == kHugeReward) result.reward = std::numeric_limits<double>::max();
    result.terminated = order & kTerminated;
    result.truncated = order & kTruncated;
    result.game_over = order & kGameOver;
    result.observation = Observe(order == kOtherShape ? kNumPlanes - 1 : kNumPlanes);
    return result;
  }

  void Close() override {}

 private:
  TensorNest Observe(int num_planes) {
    const Tensor frame = buffers_.Empty(DType::kUint8, {num_planes, 2, 3});
    std::memcpy(frame.data, frame_, num_planes * kPlaneBytes);
    int32_t total = 0;
    for (uint8_t byte : frame_) total += byte;
    const Tensor sum = buffers_.Empty(DType::kInt32, {});
    std::memcpy(sum.data, &total, sizeof(total));
    return TensorNest(TensorNest::Mapping{
        {"frame", frame},
        {"sum", TensorNest(TensorNest::Sequence{sum, buffers_.Empty(DType::kFloat64, {0})})}});
  }

  const std::shared_ptr<bool> broken_;
  uint8_t frame_[kFrameBytes] = {};
  BufferPool buffers_;
};

inline EnvironmentFactory EchoEnvironments() {
  return [broken = std::make_shared<bool>(false)] {
    return std::make_unique<EchoEnvironment>(broken);
  };
}

}  // namespace torchbeast
