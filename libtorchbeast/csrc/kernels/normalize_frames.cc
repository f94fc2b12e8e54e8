#include "kernels/normalize_frames.h"

#include "kernels/avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

namespace {

// Pixels of one plane that are taken at a time.
constexpr int64_t kPixels = 16;

// Four pixels of four planes.
AVX512 inline void NormalizePixels(const __m128i& bytes, const float* means, float scale,
                                   uint16_t* outputs) {
  __m512 mean;
  Load(means, mean);
  const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  StoreRounded((values - mean) * scale, outputs);
}

AVX512 void NormalizeStack(const uint8_t* stack, const float* means, float scale, uint16_t* outputs,
                           int64_t pixels) {
  int64_t p = 0;
  for (; p + kPixels <= pixels; p += kPixels) {
    __m128i planes[kStackedFrames];
    for (int64_t c = 0; c < kStackedFrames; ++c) Load(stack + c * pixels + p, planes[c]);
    // From planes to pixels: pairs of channels, then all four.
    const __m128i low01 = _mm_unpacklo_epi8(planes[0], planes[1]);
    const __m128i high01 = _mm_unpackhi_epi8(planes[0], planes[1]);
    const __m128i low23 = _mm_unpacklo_epi8(planes[2], planes[3]);
    const __m128i high23 = _mm_unpackhi_epi8(planes[2], planes[3]);
    const __m128i bytes[] = {_mm_unpacklo_epi16(low01, low23), _mm_unpackhi_epi16(low01, low23),
                             _mm_unpacklo_epi16(high01, high23),
                             _mm_unpackhi_epi16(high01, high23)};
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t at = (p + 4 * i) * kStackedFrames;
      NormalizePixels(bytes[i], means + at, scale, outputs + at);
    }
  }
  for (; p < pixels; ++p) {
    __m512 value{};
    for (int64_t c = 0; c < kStackedFrames; ++c) {
      value[c] = (stack[c * pixels + p] - means[p * kStackedFrames + c]) * scale;
    }
    uint16_t rounded[kVectorFloats];
    StoreRounded(value, rounded);
    std::memcpy(outputs + p * kStackedFrames, rounded, kStackedFrames * sizeof *rounded);
  }
}

}  // namespace

void NormalizeFrames(const uint8_t* stacks, const float* means, const float* scales,
                     const int32_t* games, uint16_t* outputs, const StackShape& shape) {
  const int64_t size = kStackedFrames * shape.pixels;
  for (int64_t n = 0; n < shape.count; ++n) {
    NormalizeStack(stacks + n * size, means + games[n] * size, scales[games[n]], outputs + n * size,
                   shape.pixels);
  }
}

#endif

}  // namespace torchbeast
