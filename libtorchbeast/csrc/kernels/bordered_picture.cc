#include "kernels/bordered_picture.h"

#include <cstring>

#if TB_HAS_AVX512

namespace torchbeast {

namespace {

// Zeros for negative numbers. As integers these are smaller than NaN of negative sign, which stays.
AVX512 inline __m512i ToPositive(const __m512i& bits) {
  return _mm512_maskz_mov_epi16(_mm512_cmpgt_epi16_mask(bits, _mm512_set1_epi16(-128)), bits);
}

AVX512 void CopyPositive(const uint16_t* source, uint16_t* target, int64_t size) {
  int64_t i = 0;
  for (; i + kVectorBfloats <= size; i += kVectorBfloats) {
    _mm512_storeu_si512(target + i, ToPositive(_mm512_loadu_si512(source + i)));
  }
  const __mmask32 rest = (1u << (size - i)) - 1;
  const __m512i numbers = _mm512_maskz_loadu_epi16(rest, source + i);
  _mm512_mask_storeu_epi16(target + i, rest, ToPositive(numbers));
}

}  // namespace

Bfloats MakeZeros(int64_t size) {
  const size_t bytes = sizeof(uint16_t) * static_cast<size_t>(size);
  auto* numbers = static_cast<uint16_t*>(::operator new[](bytes, FreeAligned::kAlignment));
  std::memset(numbers, 0, bytes);
  return Bfloats(numbers);
}

BorderedPicture::BorderedPicture(int64_t height, int64_t width, int64_t channels, int64_t extra)
    : height_(height),
      width_(width),
      channels_(channels),
      numbers_(MakeZeros(((height + 2) * pitch() + 1 + extra) * channels)) {}

void BorderedPicture::Fill(const uint16_t* picture, bool relu) {
  const int64_t row_size = width_ * channels_;
  for (int64_t row = 0; row < height_; ++row) {
    const uint16_t* source = picture + row * row_size;
    uint16_t* target = numbers_.get() + ((row + 1) * pitch() + 1) * channels_;
    if (relu) {
      CopyPositive(source, target, row_size);
    } else {
      std::memcpy(target, source, sizeof(uint16_t) * static_cast<size_t>(row_size));
    }
  }
}

}  // namespace torchbeast

#endif
