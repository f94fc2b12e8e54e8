// The sums of products that convolutions and the gradients of their filters consist of.
//
// They are most of the work and are computed in one of two ways: with matrix tiles (AMX) or with
// vectors (AVX512-BF16). Products are of bfloat16 numbers and are summed in float32.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

constexpr int64_t kFilterSide = 3;
constexpr int64_t kTaps = kFilterSide * kFilterSide;
// Channels of the network's input: the frames. Three neighbours have 12 numbers and stay together.
constexpr int64_t kFrames = 4;
// Outputs go in groups: one of a group in each float of a vector.
constexpr int64_t kGroup = kVectorFloats;
// A matrix of floats [16, 16], or of bfloat16 numbers [16, 16, 2].
constexpr int64_t kMatrixFloats = kGroup * kVectorFloats;
constexpr int64_t kMatrixBfloats = kGroup * kVectorBfloats;

// The weights of a convolution, which its sums multiply with inputs.
//
// A row of a filter is neighbouring numbers of the picture: those of three positions. They go in
// pairs, and 16 pairs in a step, the last of which may be short.
struct ConvolutionProducts {
  int64_t inputs, outputs;  // Channels: 4, 16 or 32, and 16 or 32.
  int64_t pitch;            // Positions in a row of the picture.
  // Matrices [3, steps, outputs / 16, 16, 16, 2]: pairs of weights for 16 outputs. Zeros behind the
  // pairs of a short step.
  const uint16_t* weights;

  int64_t pairs() const { return kFilterSide * inputs / 2; }
  int64_t steps() const { return (pairs() + kGroup - 1) / kGroup; }
  int64_t groups() const { return outputs / kGroup; }

  // Weights in row `y` of the filters: a pair and its neighbours for a group of outputs, [16, 2].
  const uint16_t* Weights(int64_t y, int64_t pair, int64_t group) const {
    const int64_t matrix = (y * steps() + pair / kGroup) * groups() + group;
    return weights + matrix * kMatrixBfloats + pair % kGroup * kVectorBfloats;
  }
};

// Inputs and gradients of outputs of one picture, and where their products are summed.
struct FilterGradientProducts {
  int64_t inputs, outputs;  // Channels: 4 or 16 for 16, 16 or 32 for 32.
  int64_t pitch;            // Positions in a row.
  // Positions of outputs; a multiple of 32. An input is at its filter's top left.
  int64_t positions;
  // Rows of at least positions + 2 * pitch + 2 inputs, `stride` apart. With 4 inputs, 12 rows: the
  // inputs at three neighbouring positions, one below the other.
  const uint16_t* transposed;
  int64_t stride;
  // [positions / 2, outputs, 2]. Zeros at the last two positions, and at two before the first.
  const uint16_t* gradients;
  // Matrices [9, inputs / 16, outputs / 16, 16, 16], and room for as many as another tap has. With
  // 4 inputs [3, 16, 16]: a matrix for each row of a filter.
  float* sums;
};

// One way to compute these sums. It has no state, so all threads can share one object.
class ConvolutionBackend {
 public:
  // Takes the sums [count, outputs] of `count` positions from `position` on, at most
  // kPositionsAtOnce. They are aligned to 64 bytes.
  using TakeSums = std::function<void(const float* sums, int64_t position, int64_t count)>;

  virtual ~ConvolutionBackend() = default;

  // Computes the sums of at least `positions` positions, up to kPositionsAtOnce - 1 more.
  // `inputs`: BorderedPicture::data(), with at least kPositionsAtOnce + 1 positions of zeros behind
  // the picture.
  virtual void Convolve(const ConvolutionProducts& products, const uint16_t* inputs,
                        int64_t positions, const TakeSums& take) const = 0;

  virtual void AddFilterGradients(const FilterGradientProducts& products) const = 0;

  static constexpr int64_t kPositionsAtOnce = 64;

  // Null where this machine cannot do it.
  static const ConvolutionBackend* Amx();
  static const ConvolutionBackend* Avx512();

  // The fastest. Needs HasAvx512Bf16().
  static const ConvolutionBackend& Best();
};

#endif

}  // namespace torchbeast
