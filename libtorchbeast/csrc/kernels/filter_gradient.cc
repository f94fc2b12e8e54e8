#include "kernels/filter_gradient.h"

#include <algorithm>
#include <array>
#include <cstring>

#if TB_HAS_AVX512

namespace torchbeast {

namespace {

int64_t RoundUp(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

// 16 numbers each of two pixels.
AVX512 inline void LoadTwo(const uint16_t* first, const uint16_t* second, __m512i& result) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  result = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Writes 16 channels of 32 positions as 16 rows of 32 positions.
AVX512 void Transpose16(const uint16_t* source, int64_t channels, uint16_t* target,
                        int64_t stride) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) {
    LoadTwo(source + i * channels, source + (16 + i) * channels, a[i]);
  }
  // Each step joins two neighbours: pairs, fours and eights of positions, in each quarter of a
  // vector. The first two quarters have positions 0 to 15.
  for (int i = 0; i < 8; ++i) {
    b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    for (int half = 0; half < 2; ++half) {
      const __m512i low = b[4 * i + half], high = b[4 * i + 2 + half];
      a[4 * i + 2 * half] = _mm512_unpacklo_epi32(low, high);
      a[4 * i + 2 * half + 1] = _mm512_unpackhi_epi32(low, high);
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      const __m512i low = a[8 * i + j], high = a[8 * i + 4 + j];
      b[8 * i + 2 * j] = _mm512_unpacklo_epi64(low, high);
      b[8 * i + 2 * j + 1] = _mm512_unpackhi_epi64(low, high);
    }
  }
  // b[8 * i + c]: positions 8 * i to 8 * i + 7, of channel c in quarters 0 and 2, of c + 8 in the
  // others.
  const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int c = 0; c < 8; ++c) {
    _mm512_storeu_si512(target + c * stride, _mm512_permutex2var_epi64(b[c], even, b[8 + c]));
    _mm512_storeu_si512(target + (c + 8) * stride, _mm512_permutex2var_epi64(b[c], odd, b[8 + c]));
  }
}

// Writes 4 channels of 32 positions as 4 rows of 32 positions; then the same one position earlier,
// as the 4 rows below, and two positions earlier.
AVX512 void Transpose4(const uint16_t* source, uint16_t* target, int64_t stride) {
  __m512i quarters[4];
  for (int i = 0; i < 4; ++i) quarters[i] = _mm512_loadu_si512(source + i * kVectorBfloats);
  alignas(64) uint16_t every_fourth[kVectorBfloats];
  for (int i = 0; i < kVectorBfloats; ++i) every_fourth[i] = static_cast<uint16_t>(i * kFrames);
  const __m512i first = _mm512_load_si512(every_fourth);
  for (int c = 0; c < kFrames; ++c) {
    const __m512i places = _mm512_add_epi16(first, _mm512_set1_epi16(static_cast<int16_t>(c)));
    // A place of 64 or more wraps round; only the first 16 results of each are taken.
    const __m512i low = _mm512_permutex2var_epi16(quarters[0], places, quarters[1]);
    const __m512i high = _mm512_permutex2var_epi16(quarters[2], places, quarters[3]);
    const __m512i row = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    for (int64_t x = 0; x < kFilterSide; ++x) {
      _mm512_storeu_si512(target + (x * kFrames + c) * stride - x, row);
    }
  }
}

}  // namespace

// The gradient of a filter's number is a product of two rows: inputs, and gradients of outputs, at
// all positions. Sums are matrices [inputs, outputs]. With 4 inputs, 3 neighbours are together in
// one matrix.
FilterGradient::FilterGradient(const ConvolutionShape& shape, const ConvolutionBackend& backend)
    : shape_(shape),
      backend_(backend),
      picture_(shape.height, shape.width, shape.inputs, 3 * kVectorBfloats),
      positions_(RoundUp(picture_.size() + 2, kVectorBfloats)),
      // Not a power of two: rows would share few lines of the cache.
      stride_(RoundUp(positions_ + 2 * picture_.pitch() + 2, kVectorBfloats) + kVectorBfloats),
      transposed_(MakeZeros(std::max(kFilterSide * kFrames, shape.inputs) * stride_)),
      gradients_(MakeZeros((2 + positions_) * shape.outputs)),
      sums_(static_cast<size_t>((kTaps + 1) * 4 * kMatrixFloats)),
      bias_(static_cast<size_t>(shape.outputs)) {}

void FilterGradient::TransposeInputs() {
  const int64_t size = stride_ - kVectorBfloats;
  const uint16_t* source = picture_.data();
  for (int64_t position = 0; position < size; position += kVectorBfloats) {
    if (shape_.inputs == kFrames) {
      // At position 0, earlier ones are behind the row above, where nobody reads.
      Transpose4(source + position * kFrames, transposed_.get() + position, stride_);
    } else {
      for (int64_t c = 0; c < shape_.inputs; c += kGroup) {
        Transpose16(source + position * shape_.inputs + c, shape_.inputs,
                    transposed_.get() + c * stride_ + position, stride_);
      }
    }
  }
}

AVX512 void FilterGradient::PairGradients(const uint16_t* gradients) {
  alignas(64) static const std::array<uint16_t, kVectorBfloats> alternating = [] {
    std::array<uint16_t, kVectorBfloats> order;
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<uint16_t>(i / 2 + kGroup * (i % 2));
    }
    return order;
  }();
  const __m512i order = _mm512_load_si512(alternating.data());
  const __m512i bits_of_ones = _mm512_set1_epi16(0x3f80);
  const uint16_t zeros[kGroup] = {};
  __m512bh ones;
  std::memcpy(&ones, &bits_of_ones, sizeof ones);
  const int64_t outputs = shape_.outputs;
  for (int64_t o = 0; o < outputs; o += kGroup) {
    __m512 sum = _mm512_loadu_ps(bias_.data() + o);
    for (int64_t row = 0; row < shape_.height; ++row) {
      const uint16_t* source = gradients + row * shape_.width * outputs + o;
      uint16_t* target = gradients_.get() + (2 + row * picture_.pitch()) * outputs + 2 * o;
      for (int64_t column = 0; column < shape_.width; column += 2) {
        const uint16_t* first = source + column * outputs;
        __m512i two;
        LoadTwo(first, column + 1 < shape_.width ? first + outputs : zeros, two);
        two = _mm512_permutexvar_epi16(order, two);
        _mm512_storeu_si512(target + column * outputs, two);
        __m512bh pairs;
        std::memcpy(&pairs, &two, sizeof pairs);
        sum = _mm512_dpbf16_ps(sum, pairs, ones);
      }
    }
    _mm512_storeu_ps(bias_.data() + o, sum);
  }
}

void FilterGradient::Add(const uint16_t* inputs, bool relu, const uint16_t* gradients) {
  picture_.Fill(inputs, relu);
  TransposeInputs();
  PairGradients(gradients);
  backend_.AddFilterGradients({shape_.inputs, shape_.outputs, picture_.pitch(), positions_,
                               transposed_.get(), stride_, gradients_.get() + 2 * shape_.outputs,
                               sums_.data()});
}

void FilterGradient::Write(float* weight, float* bias) const {
  std::copy(bias_.begin(), bias_.end(), bias);
  const int64_t groups = shape_.outputs / kGroup;
  for (int64_t o = 0; o < shape_.outputs; ++o) {
    for (int64_t tap = 0; tap < kTaps; ++tap) {
      for (int64_t c = 0; c < shape_.inputs; ++c) {
        // Matrices lie in the order of taps, groups of inputs and groups of outputs.
        int64_t matrix = tap, row = c;
        if (shape_.inputs == kFrames) {
          matrix = tap / kFilterSide;
          row = tap % kFilterSide * kFrames + c;
        } else if (shape_.inputs > kGroup) {
          matrix = tap * (shape_.inputs / kGroup) + c / kGroup;
          row = c % kGroup;
        }
        matrix = matrix * groups + o / kGroup;
        weight[(o * kTaps + tap) * shape_.inputs + c] =
            sums_[static_cast<size_t>(matrix * kMatrixFloats + row * kGroup + o % kGroup)];
      }
    }
  }
}

}  // namespace torchbeast

#endif
