#include <algorithm>
#include <cstring>

#include "kernels/convolution_backend.h"

#if TB_HAS_AVX512

namespace torchbeast {

namespace {

// A pair of numbers in all places of a vector.
AVX512 inline void Broadcast(const uint16_t* pair, __m512bh& result) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  const __m512i everywhere = _mm512_set1_epi32(bits);
  std::memcpy(&result, &everywhere, sizeof result);
}

// Positions whose sums are in registers at a time. There are 32 registers.
constexpr int64_t PositionsOf(int64_t groups) { return groups == 1 ? 24 : 10; }

// Computes the sums of a block of positions and writes them, [positions, kGroups * 16].
//
// A pair of inputs is loaded once for the three outputs whose filters it is in.
template <int64_t kInputs, int64_t kGroups>
AVX512 void SumBlock(const ConvolutionProducts& products, const uint16_t* inputs, float* results) {
  constexpr int64_t kPositions = PositionsOf(kGroups), kPairs = kInputs / 2;
  __m512 sums[kPositions][kGroups];
#pragma GCC unroll 32
  for (int64_t i = 0; i < kPositions; ++i) {
    for (int64_t group = 0; group < kGroups; ++group) sums[i][group] = _mm512_setzero_ps();
  }
  for (int64_t y = 0; y < kFilterSide; ++y) {
    const uint16_t* row = inputs + y * products.pitch * kInputs;
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      __m512bh weights[kFilterSide][kGroups];
      for (int64_t x = 0; x < kFilterSide; ++x) {
        for (int64_t group = 0; group < kGroups; ++group) {
          Load(products.Weights(y, x * kPairs + pair, group), weights[x][group]);
        }
      }
#pragma GCC unroll 32
      for (int64_t i = 0; i < kPositions + kFilterSide - 1; ++i) {
        __m512bh input;
        Broadcast(row + i * kInputs + 2 * pair, input);
#pragma GCC unroll 3
        for (int64_t x = 0; x < kFilterSide; ++x) {
          if (i < x || i - x >= kPositions) continue;
#pragma GCC unroll 2
          for (int64_t group = 0; group < kGroups; ++group) {
            sums[i - x][group] = _mm512_dpbf16_ps(sums[i - x][group], input, weights[x][group]);
          }
        }
      }
    }
  }
  std::memcpy(results, sums, sizeof sums);
}

// How far the second of two vectors of gradients lies behind the first, and its sums behind those
// of the first.
struct SecondVector {
  int64_t gradients, sums;
};

// Adds the products of rows of inputs with one or two vectors of gradients at each of `positions`
// positions. An input is loaded once for both.
template <int64_t kRows, int64_t kVectors>
AVX512 void AddBlock(const FilterGradientProducts& products, const uint16_t* inputs,
                     const uint16_t* gradients, int64_t positions, float* results,
                     const SecondVector& second) {
  __m512 sums[kRows][kVectors];
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kVectors; ++i) {
      Load(results + i * second.sums + row * kVectorFloats, sums[row][i]);
    }
  }
  for (int64_t position = 0; position < positions; position += 2) {
    __m512bh pairs[kVectors];
    for (int64_t i = 0; i < kVectors; ++i) {
      Load(gradients + position * products.outputs + i * second.gradients, pairs[i]);
    }
#pragma GCC unroll 16
    for (int64_t row = 0; row < kRows; ++row) {
      __m512bh input;
      Broadcast(inputs + row * products.stride + position, input);
#pragma GCC unroll 2
      for (int64_t i = 0; i < kVectors; ++i) {
        sums[row][i] = _mm512_dpbf16_ps(sums[row][i], input, pairs[i]);
      }
    }
  }
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kVectors; ++i) {
      Store(sums[row][i], results + i * second.sums + row * kVectorFloats);
    }
  }
}

class Avx512Backend : public ConvolutionBackend {
 public:
  void Convolve(const ConvolutionProducts& products, const uint16_t* inputs, int64_t positions,
                const TakeSums& take) const override {
    const auto sum_block = ChooseSumBlock(products);
    const int64_t groups = products.outputs / kGroup, at_once = PositionsOf(groups);
    alignas(64) float sums[PositionsOf(1) * kVectorFloats];
    for (int64_t position = 0; position < positions; position += at_once) {
      sum_block(products, inputs + position * products.inputs, sums);
      take(sums, position, at_once);
    }
  }

  void AddFilterGradients(const FilterGradientProducts& products) const override {
    // What all filters need of so many positions stays in the first cache.
    constexpr int64_t kAtOnce = 256;
    for (int64_t position = 0; position < products.positions; position += kAtOnce) {
      AddChunk(products, position, std::min(kAtOnce, products.positions - position));
    }
  }

 private:
  static auto ChooseSumBlock(const ConvolutionProducts& products)
      -> void (*)(const ConvolutionProducts&, const uint16_t*, float*) {
    if (products.outputs == kGroup) {
      if (products.inputs == kFrames) return SumBlock<kFrames, 1>;
      return products.inputs == kGroup ? SumBlock<kGroup, 1> : SumBlock<2 * kGroup, 1>;
    }
    return products.inputs == kGroup ? SumBlock<kGroup, 2> : SumBlock<2 * kGroup, 2>;
  }

  static void AddChunk(const FilterGradientProducts& products, int64_t position, int64_t count) {
    const uint16_t* inputs = products.transposed + position;
    const uint16_t* gradients = products.gradients + position * products.outputs;
    float* sums = products.sums;
    const auto add_two = [&](const uint16_t* rows, float* results, const SecondVector& second) {
      constexpr int64_t kHalf = kGroup / 2;
      AddBlock<kHalf, 2>(products, rows, gradients, count, results, second);
      AddBlock<kHalf, 2>(products, rows + kHalf * products.stride, gradients, count,
                         results + kHalf * kVectorFloats, second);
    };
    for (int64_t y = 0; y < kFilterSide; ++y, inputs += products.pitch) {
      if (products.inputs == kFrames) {
        constexpr int64_t kRows = kFilterSide * kFrames;
        AddBlock<kRows, 1>(products, inputs, gradients, count, sums, {});
        sums += kMatrixFloats;
      } else if (products.outputs == kGroup) {
        // The third input of an output is the first of the output two positions later.
        add_two(inputs, sums, {-2 * products.outputs, 2 * kMatrixFloats});
        AddBlock<kGroup, 1>(products, inputs + 1, gradients, count, sums + kMatrixFloats, {});
        sums += kFilterSide * kMatrixFloats;
      } else {
        for (int64_t x = 0; x < kFilterSide; ++x) {
          for (int64_t c = 0; c < products.inputs; c += kGroup, sums += 2 * kMatrixFloats) {
            add_two(inputs + c * products.stride + x, sums, {kVectorBfloats, kMatrixFloats});
          }
        }
      }
    }
  }
};

}  // namespace

const ConvolutionBackend* ConvolutionBackend::Avx512() {
  static const Avx512Backend backend;
  return HasAvx512Bf16() ? &backend : nullptr;
}

const ConvolutionBackend& ConvolutionBackend::Best() { return Amx() ? *Amx() : *Avx512(); }

}  // namespace torchbeast

#endif
