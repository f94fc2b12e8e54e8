#include "max_pool.h"

#include <algorithm>
#include <vector>

#include "avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

namespace {

// Vectors of one number per channel.
static_assert(kPoolChannels == sizeof(Floats) / sizeof(float));
using Int16s = int16_t __attribute__((vector_size(2 * kPoolChannels)));
using Int8s = int8_t __attribute__((vector_size(kPoolChannels)));
using Uint8s = uint8_t __attribute__((vector_size(kPoolChannels)));

// A place that no maximum has.
constexpr uint8_t kNowhere = 255;

// Numbers in a vector.
constexpr int64_t kNumbers = 32;

// Bits of bfloat16 numbers as integers of the same order; NaN, of either sign, is the largest.
AVX512 inline __m512i ToOrdered(const __m512i& bits) {
  const __m512i all = _mm512_set1_epi16(0x7fff);
  const __mmask32 is_nan =
      _mm512_cmpgt_epi16_mask(_mm512_and_si512(bits, all), _mm512_set1_epi16(0x7f80));
  const __m512i sign = _mm512_srai_epi16(bits, 15);
  return _mm512_mask_mov_epi16(_mm512_xor_si512(bits, _mm512_and_si512(sign, all)), is_nan, all);
}

AVX512 inline __m256i FromOrdered(const __m256i& values) {
  const __m256i sign = _mm256_srai_epi16(values, 15);
  return _mm256_xor_si256(values, _mm256_and_si256(sign, _mm256_set1_epi16(0x7fff)));
}

AVX512 inline __mmask32 FirstLanes(int64_t count) {
  return count >= kNumbers ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

// The largest of the three numbers above each other in the windows of a row, [W, C] as ordered
// integers, and the place of the first of them in a window's first column: 0, 3 or 6.
struct Columns {
  std::vector<int16_t> best, place;
};

AVX512 void PoolColumns(const uint16_t* picture, const PoolShape& shape, int64_t row,
                        Columns& columns) {
  const int64_t size = shape.width * shape.channels, top = 2 * row - 1;
  const int64_t start = std::max<int64_t>(0, top), end = std::min(shape.height, top + 3);
  for (int64_t i = 0; i < size; i += kNumbers) {
    const __mmask32 lanes = FirstLanes(size - i);
    __m512i best = ToOrdered(_mm512_maskz_loadu_epi16(lanes, picture + start * size + i));
    __m512i place = _mm512_set1_epi16(static_cast<int16_t>((start - top) * 3));
    for (int64_t y = start + 1; y < end; ++y) {
      const __m512i values = ToOrdered(_mm512_maskz_loadu_epi16(lanes, picture + y * size + i));
      const __mmask32 larger = _mm512_cmpgt_epi16_mask(values, best);
      best = _mm512_mask_mov_epi16(best, larger, values);
      place = _mm512_mask_mov_epi16(place, larger,
                                    _mm512_set1_epi16(static_cast<int16_t>((y - top) * 3)));
    }
    _mm512_mask_storeu_epi16(columns.best.data() + i, lanes, best);
    _mm512_mask_storeu_epi16(columns.place.data() + i, lanes, place);
  }
}

// The maximum of the window at `column` at one block of channels, from its three columns.
AVX512 inline void PoolWindow(const Columns& columns, const PoolShape& shape, int64_t column,
                              int64_t channel, uint16_t* output, uint8_t* place_of_output) {
  const int64_t left = 2 * column - 1;
  const int64_t start = std::max<int64_t>(0, left), end = std::min(shape.width, left + 3);
  __m256i best{}, place{};
  for (int64_t x = start; x < end; ++x) {
    __m256i values, places;
    Load(columns.best.data() + x * shape.channels + channel, values);
    Load(columns.place.data() + x * shape.channels + channel, places);
    places = _mm256_add_epi16(places, _mm256_set1_epi16(static_cast<int16_t>(x - left)));
    // Of several equal ones, the first row by row.
    const __mmask16 is_before =
        _mm256_cmpeq_epi16_mask(values, best) & _mm256_cmplt_epi16_mask(places, place);
    const __mmask16 is_better =
        x == start ? ~__mmask16{0} : _mm256_cmpgt_epi16_mask(values, best) | is_before;
    best = _mm256_mask_mov_epi16(best, is_better, values);
    place = _mm256_mask_mov_epi16(place, is_better, places);
  }
  Store(FromOrdered(best), output);
  if (place_of_output) Store(_mm256_cvtepi16_epi8(place), place_of_output);
}

AVX512 void Forward(const uint16_t* inputs, uint16_t* outputs, uint8_t* places,
                    const PoolShape& shape) {
  const auto row_size = static_cast<size_t>(shape.width * shape.channels);
  Columns columns{std::vector<int16_t>(row_size), std::vector<int16_t>(row_size)};
  int64_t output = 0;
  for (int64_t n = 0; n < shape.count; ++n) {
    const uint16_t* picture = inputs + n * shape.height * shape.width * shape.channels;
    for (int64_t row = 0; row < shape.pooled_height(); ++row) {
      PoolColumns(picture, shape, row, columns);
      for (int64_t column = 0; column < shape.pooled_width(); ++column) {
        for (int64_t c = 0; c < shape.channels; c += kPoolChannels, output += kPoolChannels) {
          PoolWindow(columns, shape, column, c, outputs + output,
                     places ? places + output : nullptr);
        }
      }
    }
  }
}

// One window's gradients and places, at one block of channels.
struct Window {
  Uint16s gradients;
  Uint8s places;
};

// Adds the gradients of those channels whose maximum is at `place`.
AVX512 inline void AddWhere(const Window& window, int place, Floats& sum) {
  const Int8s is_here = window.places == static_cast<uint8_t>(place);
  const auto kept =
      window.gradients & reinterpret_cast<Uint16s>(__builtin_convertvector(is_here, Int16s));
  sum += reinterpret_cast<Floats>(__builtin_convertvector(kept, Uint32s) << 16);
}

AVX512 inline void LoadWindow(const uint16_t* gradients, const uint8_t* places, bool exists,
                              Window& window) {
  if (exists) {
    Load(gradients, window.gradients);
    Load(places, window.places);
  } else {
    window.gradients = Uint16s{};
    window.places = Uint8s{} + kNowhere;
  }
}

// A window's centre is an input of even row and column. The input below belongs to this window and
// the next one down, the input to the right likewise: four inputs at a time see at most four
// windows.
AVX512 void Backward(const uint16_t* gradients, const uint8_t* places, uint16_t* input_gradients,
                     const PoolShape& shape) {
  const int64_t rows = shape.pooled_height(), columns = shape.pooled_width();
  const int64_t right = shape.channels, below = columns * shape.channels;
  const int64_t input_row = shape.width * shape.channels;
  for (int64_t n = 0; n < shape.count; ++n) {
    for (int64_t row = 0; row < rows; ++row) {
      const bool has_row = row + 1 < rows, has_odd_row = 2 * row + 1 < shape.height;
      for (int64_t column = 0; column < columns; ++column) {
        const bool has_column = column + 1 < columns;
        const bool has_odd_column = 2 * column + 1 < shape.width;
        for (int64_t c = 0; c < shape.channels; c += kPoolChannels) {
          const int64_t at = ((n * rows + row) * columns + column) * shape.channels + c;
          Window here, next, under, diagonal;
          LoadWindow(gradients + at, places + at, true, here);
          LoadWindow(gradients + at + right, places + at + right, has_column, next);
          LoadWindow(gradients + at + below, places + at + below, has_row, under);
          LoadWindow(gradients + at + below + right, places + at + below + right,
                     has_row && has_column, diagonal);
          uint16_t* target =
              input_gradients +
              ((n * shape.height + 2 * row) * shape.width + 2 * column) * shape.channels + c;
          Floats sum{};
          AddWhere(here, 4, sum);
          StoreRounded(sum, target);
          if (has_odd_column) {
            sum = Floats{};
            AddWhere(here, 5, sum);
            AddWhere(next, 3, sum);
            StoreRounded(sum, target + shape.channels);
          }
          if (!has_odd_row) continue;
          sum = Floats{};
          AddWhere(here, 7, sum);
          AddWhere(under, 1, sum);
          StoreRounded(sum, target + input_row);
          if (has_odd_column) {
            sum = Floats{};
            AddWhere(here, 8, sum);
            AddWhere(next, 6, sum);
            AddWhere(under, 2, sum);
            AddWhere(diagonal, 0, sum);
            StoreRounded(sum, target + input_row + shape.channels);
          }
        }
      }
    }
  }
}

}  // namespace

void MaxPool(const uint16_t* inputs, uint16_t* outputs, uint8_t* places, const PoolShape& shape) {
  Forward(inputs, outputs, places, shape);
}

void MaxPoolBackward(const uint16_t* gradients, const uint8_t* places, uint16_t* input_gradients,
                     const PoolShape& shape) {
  Backward(gradients, places, input_gradients, shape);
}

#else

void MaxPool(const uint16_t*, uint16_t*, uint8_t*, const PoolShape&) { RequireAvx512(); }

void MaxPoolBackward(const uint16_t*, const uint8_t*, uint16_t*, const PoolShape&) {
  RequireAvx512();
}

#endif

}  // namespace torchbeast
