// Memory of bfloat16 numbers, and a picture in it as convolutions read it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "kernels/avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

struct FreeAligned {
  void operator()(uint16_t* numbers) const { ::operator delete[](numbers, kAlignment); }
  static constexpr std::align_val_t kAlignment{64};
};

// Bits of bfloat16 numbers, zeros at first, at the beginning of a line of the processor's cache.
using Bfloats = std::unique_ptr<uint16_t[], FreeAligned>;
Bfloats MakeZeros(int64_t size);

// A picture with a border of zeros.
//
// Position (row, column) lies at row * pitch + column. There is a row of zeros above the picture
// and one below. Columns of zeros are the right border of a row and the left border of the next. So
// each of a filter's 9 inputs has the same distance from its output at every position, and sums
// may run over the ends of rows: what they are at the border is dropped.
class BorderedPicture {
 public:
  // `extra`: positions of zeros behind the picture.
  BorderedPicture(int64_t height, int64_t width, int64_t channels, int64_t extra);

  // Takes a picture [H, W, C], its negative numbers as zeros with `relu`.
  void Fill(const uint16_t* picture, bool relu);

  // The input at the top left of a filter whose output is at position 0.
  const uint16_t* data() const { return numbers_.get(); }
  // Even: pairs of positions do not cross the ends of rows.
  int64_t pitch() const { return (width_ + 2) / 2 * 2; }
  // Positions of outputs.
  int64_t size() const { return height_ * pitch(); }

 private:
  const int64_t height_, width_, channels_;
  Bfloats numbers_;
};

#endif

}  // namespace torchbeast
