#include "kernels/max_pool.h"

#include <algorithm>
#include <vector>

#include "kernels/avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

namespace {

// A vector of one number per channel.
static_assert(kPoolChannels == kVectorFloats);

// An index that no maximum has.
constexpr char kNowhere = -1;

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
  return count >= kVectorBfloats ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

// The largest of the three numbers above each other in the windows of a row, [W, C] as ordered
// integers, and the index of the first of them in a window's first column: 0, 3 or 6.
struct Columns {
  std::vector<int16_t> best, index;
};

AVX512 void PoolColumns(const uint16_t* picture, const PoolShape& shape, int64_t row,
                        Columns& columns) {
  const int64_t size = shape.width * shape.channels, top = 2 * row - 1;
  const int64_t start = std::max<int64_t>(0, top), end = std::min(shape.height, top + 3);
  for (int64_t i = 0; i < size; i += kVectorBfloats) {
    const __mmask32 lanes = FirstLanes(size - i);
    __m512i best = ToOrdered(_mm512_maskz_loadu_epi16(lanes, picture + start * size + i));
    __m512i index = _mm512_set1_epi16(static_cast<int16_t>((start - top) * 3));
    for (int64_t y = start + 1; y < end; ++y) {
      const __m512i values = ToOrdered(_mm512_maskz_loadu_epi16(lanes, picture + y * size + i));
      const __mmask32 larger = _mm512_cmpgt_epi16_mask(values, best);
      best = _mm512_mask_mov_epi16(best, larger, values);
      index = _mm512_mask_mov_epi16(index, larger,
                                    _mm512_set1_epi16(static_cast<int16_t>((y - top) * 3)));
    }
    _mm512_mask_storeu_epi16(columns.best.data() + i, lanes, best);
    _mm512_mask_storeu_epi16(columns.index.data() + i, lanes, index);
  }
}

// The maximum of the window at `column` at one block of channels, from its three columns.
AVX512 inline void PoolWindow(const Columns& columns, const PoolShape& shape, int64_t column,
                              int64_t channel, uint16_t* output, uint8_t* index_of_output) {
  const int64_t left = 2 * column - 1;
  const int64_t start = std::max<int64_t>(0, left), end = std::min(shape.width, left + 3);
  __m256i best{}, index{};
  for (int64_t x = start; x < end; ++x) {
    __m256i values, indices;
    Load(columns.best.data() + x * shape.channels + channel, values);
    Load(columns.index.data() + x * shape.channels + channel, indices);
    indices = _mm256_add_epi16(indices, _mm256_set1_epi16(static_cast<int16_t>(x - left)));
    // Among equal ones the first counts, row by row.
    const __mmask16 is_before =
        _mm256_cmpeq_epi16_mask(values, best) & _mm256_cmplt_epi16_mask(indices, index);
    const __mmask16 is_better =
        x == start ? ~__mmask16{0} : _mm256_cmpgt_epi16_mask(values, best) | is_before;
    best = _mm256_mask_mov_epi16(best, is_better, values);
    index = _mm256_mask_mov_epi16(index, is_better, indices);
  }
  Store(FromOrdered(best), output);
  if (index_of_output) Store(_mm256_cvtepi16_epi8(index), index_of_output);
}

}  // namespace

AVX512 void MaxPool(const uint16_t* inputs, uint16_t* outputs, uint8_t* indices,
                    const PoolShape& shape) {
  const auto row_size = static_cast<size_t>(shape.width * shape.channels);
  Columns columns{std::vector<int16_t>(row_size), std::vector<int16_t>(row_size)};
  int64_t output = 0;
  for (int64_t row = 0; row < shape.pooled_height(); ++row) {
    PoolColumns(inputs, shape, row, columns);
    for (int64_t column = 0; column < shape.pooled_width(); ++column) {
      for (int64_t c = 0; c < shape.channels; c += kPoolChannels, output += kPoolChannels) {
        PoolWindow(columns, shape, column, c, outputs + output,
                   indices ? indices + output : nullptr);
      }
    }
  }
}

namespace {

// One window's gradients and indices, at one block of channels.
struct Window {
  __m512 gradients;
  __m128i indices;
};

AVX512 inline void LoadWindow(const uint16_t* gradients, const uint8_t* indices, bool exists,
                              Window& window) {
  window.gradients = _mm512_setzero_ps();
  window.indices = _mm_set1_epi8(kNowhere);
  if (!exists) return;
  __m256i bits;
  Load(gradients, bits);
  Load(indices, window.indices);
  window.gradients = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Adds the gradients of those channels whose maximum is at `index`.
AVX512 inline void AddWhere(const Window& window, char index, __m512& sum) {
  const __mmask16 is_here = _mm_cmpeq_epi8_mask(window.indices, _mm_set1_epi8(index));
  sum = _mm512_mask_add_ps(sum, is_here, sum, window.gradients);
}

// The gradients of a block of channels in a row of windows: up to two rows of inputs.
//
// A window's centre is an input of even row and column. The input below belongs to this window and
// the next one down, the input to the right likewise: four inputs at a time see at most four
// windows.
AVX512 void BackwardRow(const uint16_t* gradients, const uint8_t* indices,
                        uint16_t* input_gradients, int64_t row, const PoolShape& shape) {
  const int64_t columns = shape.pooled_width(), channels = shape.channels;
  const int64_t below = columns * channels, input_row = shape.width * channels;
  const bool has_row = row + 1 < shape.pooled_height(), has_odd_row = 2 * row + 1 < shape.height;
  Window here, next, under, diagonal;
  LoadWindow(gradients, indices, true, next);
  LoadWindow(gradients + below, indices + below, has_row, diagonal);
  for (int64_t column = 0; column < columns; ++column) {
    here = next;
    under = diagonal;
    gradients += channels;
    indices += channels;
    const bool has_column = column + 1 < columns;
    LoadWindow(gradients, indices, has_column, next);
    LoadWindow(gradients + below, indices + below, has_row && has_column, diagonal);
    uint16_t* target = input_gradients + 2 * column * channels;
    const bool has_odd_column = 2 * column + 1 < shape.width;
    __m512 sum = _mm512_setzero_ps();
    AddWhere(here, 4, sum);
    StoreRounded(sum, target);
    if (has_odd_column) {
      sum = _mm512_setzero_ps();
      AddWhere(here, 5, sum);
      AddWhere(next, 3, sum);
      StoreRounded(sum, target + channels);
    }
    if (!has_odd_row) continue;
    sum = _mm512_setzero_ps();
    AddWhere(here, 7, sum);
    AddWhere(under, 1, sum);
    StoreRounded(sum, target + input_row);
    if (has_odd_column) {
      sum = _mm512_setzero_ps();
      AddWhere(here, 8, sum);
      AddWhere(next, 6, sum);
      AddWhere(under, 2, sum);
      AddWhere(diagonal, 0, sum);
      StoreRounded(sum, target + input_row + channels);
    }
  }
}

}  // namespace

AVX512 void MaxPoolBackward(const uint16_t* gradients, const uint8_t* indices,
                            uint16_t* input_gradients, const PoolShape& shape) {
  const int64_t rows = shape.pooled_height(), size = shape.pooled_width() * shape.channels;
  for (int64_t row = 0; row < rows; ++row) {
    uint16_t* target = input_gradients + 2 * row * shape.width * shape.channels;
    for (int64_t c = 0; c < shape.channels; c += kPoolChannels) {
      BackwardRow(gradients + row * size + c, indices + row * size + c, target + c, row, shape);
    }
  }
}

#endif

}  // namespace torchbeast
