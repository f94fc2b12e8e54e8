#include "kernels/convolution.h"

#include <algorithm>
#include <cstring>

#if TB_HAS_AVX512

namespace torchbeast {

namespace {

float ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float number;
  std::memcpy(&number, &wide, sizeof number);
  return number;
}

// `size` is a multiple of 16.
AVX512 Bfloats Round(const float* numbers, int64_t size) {
  Bfloats rounded = MakeZeros(size);
  for (int64_t i = 0; i < size; i += kVectorFloats) {
    __m512 sixteen;
    Load(numbers + i, sixteen);
    StoreRounded(sixteen, rounded.get() + i);
  }
  return rounded;
}

// Writes `size` outputs from `first` on, from their sums; `bias` [16] or [32].
template <bool kHasReluInput, bool kHasResidual>
AVX512 void FinishNeighbours(const float* sums, const std::vector<float>& bias, int64_t first,
                             int64_t size, const Convolution::Outputs& outputs) {
  const size_t last_group = bias.size() - kGroup;
  for (int64_t i = 0; i < size; i += kGroup) {
    const float* of_group = bias.data() + (static_cast<size_t>(i) & last_group);
    __m512 numbers = _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_loadu_ps(of_group));
    const int64_t at = first + i;
    if constexpr (kHasReluInput) {
      const __m256i relu_input =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(outputs.relu_input + at));
      numbers =
          _mm512_maskz_mov_ps(_mm256_cmpgt_epi16_mask(relu_input, _mm256_setzero_si256()), numbers);
    }
    if constexpr (kHasResidual) {
      const __m256i bits =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(outputs.residual + at));
      const __m512i residual = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
      numbers = _mm512_add_ps(numbers, _mm512_castsi512_ps(residual));
    }
    StoreRounded(numbers, outputs.numbers + at);
  }
}

}  // namespace

Convolution::Convolution(const Filters& filters, const ConvolutionShape& shape,
                         const ConvolutionBackend& backend)
    : Convolution(filters.weight, filters.bias, shape, false, backend) {}

Convolution Convolution::ForInputGradients(const Filters& filters, const ConvolutionShape& shape,
                                           const ConvolutionBackend& backend) {
  return Convolution(filters.weight, nullptr,
                     {shape.height, shape.width, shape.outputs, shape.inputs}, true, backend);
}

// The backend reads up to a block of positions behind the last one.
Convolution::Convolution(const float* weight, const float* bias, const ConvolutionShape& shape,
                         bool for_gradients, const ConvolutionBackend& backend)
    : shape_(shape),
      backend_(backend),
      picture_(shape.height, shape.width, shape.inputs, ConvolutionBackend::kPositionsAtOnce + 1),
      products_{shape.inputs, shape.outputs, picture_.pitch(), nullptr},
      bias_(static_cast<size_t>(shape.outputs)) {
  if (bias) {
    // As the weights are, so that an agent whose parameters are bfloat16 already computes the same.
    const Bfloats rounded = Round(bias, shape.outputs);
    std::transform(rounded.get(), rounded.get() + shape.outputs, bias_.begin(), ToFloat);
  }
  Pack(weight, for_gradients);
}

void Convolution::Pack(const float* weight, bool for_gradients) {
  const int64_t inputs = shape_.inputs, outputs = shape_.outputs;
  weights_ = MakeZeros(kFilterSide * products_.steps() * products_.groups() * kMatrixBfloats);
  products_.weights = weights_.get();
  const Bfloats rounded = Round(weight, kTaps * inputs * outputs);
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t c = 0; c < inputs; ++c) {
        // The filter of a gradient is rotated by 180 degrees, its inputs and outputs exchanged.
        const int64_t source = for_gradients ? (c * kTaps + kTaps - 1 - tap) * outputs + o
                                             : (o * kTaps + tap) * inputs + c;
        const int64_t number = tap % kFilterSide * inputs + c;
        const uint16_t* pairs = products_.Weights(tap / kFilterSide, number / 2, o / kGroup);
        weights_[pairs - weights_.get() + o % kGroup * 2 + number % 2] = rounded[source];
      }
    }
  }
}

// Writes the outputs of `count` positions from their sums, [count, outputs].
void Convolution::Finish(const float* sums, int64_t position, int64_t count,
                         const Outputs& outputs) const {
  const auto finish = [&] {
    if (outputs.relu_input && outputs.residual) return FinishNeighbours<true, true>;
    if (outputs.relu_input) return FinishNeighbours<true, false>;
    return outputs.residual ? FinishNeighbours<false, true> : FinishNeighbours<false, false>;
  }();
  const int64_t end = std::min(position + count, picture_.size());
  while (position < end) {
    const int64_t row = position / picture_.pitch(), column = position % picture_.pitch();
    const int64_t in_row = std::min(end - position, picture_.pitch() - column);
    // The last columns are the border.
    const int64_t inside = std::min(in_row, shape_.width - column);
    finish(sums, bias_, (row * shape_.width + column) * shape_.outputs, inside * shape_.outputs,
           outputs);
    position += in_row;
    sums += in_row * shape_.outputs;
  }
}

void Convolution::Run(const uint16_t* inputs, bool relu, const Outputs& outputs) {
  picture_.Fill(inputs, relu);
  backend_.Convolve(products_, picture_.data(), picture_.size(),
                    [&](const float* sums, int64_t position, int64_t count) {
                      Finish(sums, position, count, outputs);
                    });
}

}  // namespace torchbeast

#endif
