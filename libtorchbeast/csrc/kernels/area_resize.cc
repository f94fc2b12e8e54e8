#include "kernels/area_resize.h"

#include <algorithm>
#include <cmath>

#include "kernels/avx512.h"

namespace torchbeast {

namespace {

// Smaller parts of a pixel do not count.
constexpr double kLeastPart = 1e-3;
// Old pixels that are read at a time.
constexpr int64_t kTapsAtOnce = 4;

struct Covered {
  int64_t pixel;
  double length;
};

// The old pixels that the new one at `place` covers.
std::vector<Covered> FindCovered(int64_t place, double scale, int64_t from) {
  const double start = static_cast<double>(place) * scale, end = start + scale;
  const auto last_whole = std::min(static_cast<int64_t>(std::floor(end)), from - 1);
  const auto first_whole = std::min(static_cast<int64_t>(std::ceil(start)), last_whole);
  std::vector<Covered> covered;
  const double before = static_cast<double>(first_whole) - start;
  if (before > kLeastPart) covered.push_back({first_whole - 1, before});
  for (int64_t pixel = first_whole; pixel < last_whole; ++pixel) covered.push_back({pixel, 1.0});
  const double behind = end - static_cast<double>(last_whole);
  if (behind > kLeastPart) covered.push_back({last_whole, std::min(behind, 1.0)});
  return covered;
}

}  // namespace

AreaResize::Axis::Axis(int64_t from, int64_t to)
    : stride((to + kVectorFloats - 1) / kVectorFloats * kVectorFloats) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  std::vector<std::vector<Covered>> all;
  for (int64_t place = 0; place < to; ++place) {
    all.push_back(FindCovered(place, scale, from));
    taps = std::max(taps, static_cast<int64_t>(all.back().size()));
  }
  first.resize(static_cast<size_t>(stride));
  shares.resize(static_cast<size_t>(taps * stride));
  for (int64_t place = 0; place < to; ++place) {
    const std::vector<Covered>& covered = all[static_cast<size_t>(place)];
    const double start = static_cast<double>(place) * scale;
    const double size = std::min(scale, static_cast<double>(from) - start);
    first[static_cast<size_t>(place)] = static_cast<int32_t>(covered.front().pixel);
    for (size_t tap = 0; tap < covered.size(); ++tap) {
      shares[tap * static_cast<size_t>(stride) + static_cast<size_t>(place)] =
          static_cast<float>(covered[tap].length / size);
    }
  }
}

AreaResize::AreaResize(const PictureSize& from, const PictureSize& to)
    : from_(from),
      to_(to),
      columns_(from.width, to.width),
      rows_(from.height, to.height),
      row_(static_cast<size_t>(from.width + columns_.taps + kTapsAtOnce + 2 * kVectorBfloats)),
      rows_shrunk_(static_cast<size_t>(from.height * columns_.stride)) {}

#if TB_HAS_AVX512

namespace {

// OpenCV rounds the product before it adds. A compiler would join the plain operations.
AVX512 inline void AddProduct(const Floats& a, const Floats& b, Floats& sum) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512 product = _mm512_mul_round_ps(reinterpret_cast<const __m512&>(a),
                                             reinterpret_cast<const __m512&>(b), kNearest);
  const __m512 added = _mm512_add_round_ps(reinterpret_cast<const __m512&>(sum), product, kNearest);
  std::memcpy(&sum, &added, sizeof sum);
}

}  // namespace

AVX512 void AreaResize::ShrinkRow(const uint8_t* first, const uint8_t* second, float* result) {
  constexpr int64_t kBytes = 2 * kVectorBfloats;
  for (int64_t i = 0; i < from_.width; i += kBytes) {
    const int64_t left = from_.width - i;
    const __mmask64 lanes = left < kBytes ? (__mmask64{1} << left) - 1 : ~__mmask64{0};
    _mm512_storeu_si512(row_.data() + i,
                        _mm512_max_epu8(_mm512_maskz_loadu_epi8(lanes, first + i),
                                        _mm512_maskz_loadu_epi8(lanes, second + i)));
  }
  const __m512i byte = _mm512_set1_epi32(0xff);
  for (int64_t i = 0; i < columns_.stride; i += kVectorFloats) {
    const __m512i places = _mm512_loadu_si512(columns_.first.data() + i);
    Floats sum = {};
    const float* shares = columns_.shares.data() + i;
    for (int64_t tap = 0; tap < columns_.taps; tap += kTapsAtOnce) {
      __m512i four = _mm512_i32gather_epi32(places, row_.data() + tap, 1);
      const int64_t end = std::min(tap + kTapsAtOnce, columns_.taps);
      for (int64_t j = tap; j < end; ++j, shares += columns_.stride) {
        const __m512 pixels = _mm512_cvtepi32_ps(_mm512_and_si512(four, byte));
        Floats share;
        Load(shares, share);
        AddProduct(reinterpret_cast<const Floats&>(pixels), share, sum);
        four = _mm512_srli_epi32(four, 8);
      }
    }
    Store(sum, result + i);
  }
}

AVX512 void AreaResize::SumRows(int64_t row, uint8_t* result) const {
  const auto place = static_cast<size_t>(row);
  const float* first = rows_shrunk_.data() + rows_.first[place] * columns_.stride;
  for (int64_t i = 0; i < to_.width; i += kVectorFloats) {
    Floats sum = {};
    for (int64_t tap = 0; tap < rows_.taps; ++tap) {
      const float share = rows_.shares[static_cast<size_t>(tap * rows_.stride) + place];
      if (share == 0.0f) break;
      Floats pixels;
      Load(first + tap * columns_.stride + i, pixels);
      AddProduct(pixels, Floats{} + share, sum);
    }
    const __m512i whole = _mm512_cvtps_epi32(reinterpret_cast<const __m512&>(sum));
    const int64_t left = to_.width - i;
    const __mmask16 lanes = left < kVectorFloats ? (1u << left) - 1 : 0xffff;
    _mm512_mask_cvtusepi32_storeu_epi8(result + i, lanes, whole);
  }
}

void AreaResize::ResizeMaximum(const uint8_t* first, const uint8_t* second, uint8_t* result) {
  for (int64_t row = 0; row < from_.height; ++row) {
    const int64_t at = row * from_.width;
    ShrinkRow(first + at, second + at, rows_shrunk_.data() + row * columns_.stride);
  }
  for (int64_t row = 0; row < to_.height; ++row) SumRows(row, result + row * to_.width);
}

#else

void AreaResize::ResizeMaximum(const uint8_t*, const uint8_t*, uint8_t*) { RequireAvx512(); }

#endif

}  // namespace torchbeast
