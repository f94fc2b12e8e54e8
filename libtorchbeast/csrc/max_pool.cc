#include "max_pool.h"

#include <algorithm>

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

template <typename Vector>
AVX512 inline void Select(const Int16s& condition, const Vector& yes, Vector& no) {
  no = (condition & yes) | (~condition & no);
}

// Bits of bfloat16 numbers as integers of the same order; NaN, of either sign, is the largest.
AVX512 inline void ToOrdered(Int16s& bits) {
  const Int16s is_nan = (bits & 0x7fff) > 0x7f80;
  bits ^= (bits >> 15) & 0x7fff;
  bits |= is_nan & 0x7fff;
  bits &= ~is_nan | 0x7fff;
}

AVX512 inline void FromOrdered(Int16s& values) { values ^= (values >> 15) & 0x7fff; }

// The maximum of one window at one block of channels, and its place.
AVX512 inline void PoolWindow(const uint16_t* picture, const PoolShape& shape, int64_t row,
                              int64_t column, Int16s& best, Int16s& place) {
  const int64_t top = 2 * row - 1, left = 2 * column - 1;
  const int64_t bottom = std::min(shape.height, top + 3), right = std::min(shape.width, left + 3);
  best = Int16s{} + INT16_MIN;
  place = Int16s{};
  for (int64_t y = std::max<int64_t>(0, top); y < bottom; ++y) {
    for (int64_t x = std::max<int64_t>(0, left); x < right; ++x) {
      Int16s values;
      Load(picture + (y * shape.width + x) * shape.channels, values);
      ToOrdered(values);
      const Int16s larger = values > best;
      Select(larger, values, best);
      Select(larger, Int16s{} + static_cast<int16_t>((y - top) * 3 + (x - left)), place);
    }
  }
  FromOrdered(best);
}

AVX512 void Forward(const uint16_t* inputs, uint16_t* outputs, uint8_t* places,
                    const PoolShape& shape) {
  int64_t output = 0;
  for (int64_t n = 0; n < shape.count; ++n) {
    const uint16_t* picture = inputs + n * shape.height * shape.width * shape.channels;
    for (int64_t row = 0; row < shape.pooled_height(); ++row) {
      for (int64_t column = 0; column < shape.pooled_width(); ++column) {
        for (int64_t c = 0; c < shape.channels; c += kPoolChannels, output += kPoolChannels) {
          Int16s best, place;
          PoolWindow(picture + c, shape, row, column, best, place);
          Store(best, outputs + output);
          if (places) Store(__builtin_convertvector(place, Uint8s), places + output);
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
