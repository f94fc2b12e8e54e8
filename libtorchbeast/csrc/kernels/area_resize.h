// Makes a game's picture smaller: each new pixel is the mean of the area that it covers.
#pragma once

#include <cstdint>
#include <vector>

namespace torchbeast {

// Height and width.
struct PictureSize {
  int64_t height, width;
};

// Results are those of OpenCV's INTER_AREA to the bit, where the two sizes' ratio is not a whole
// number in both directions (OpenCV rounds differently then). Needs HasAvx512(). An object serves
// one thread at a time.
class AreaResize {
 public:
  // `to` is at least 1 and at most `from`, in both directions.
  AreaResize(const PictureSize& from, const PictureSize& to);

  // Resizes the maximum of two pictures [height, width].
  void ResizeMaximum(const uint8_t* first, const uint8_t* second, uint8_t* result);

  const PictureSize& from() const { return from_; }
  const PictureSize& to() const { return to_; }

 private:
  // Which neighbouring old pixels a new one covers, along one axis, and how much of it each is.
  struct Axis {
    std::vector<int32_t> first;  // Of each new pixel.
    std::vector<float> shares;   // [taps, new pixels], zeros where there are fewer.
    int64_t taps = 0;            // The most that a new pixel covers.
    int64_t stride = 0;          // New pixels, rounded up to a vector.

    Axis(int64_t from, int64_t to);
  };

  void ShrinkRow(const uint8_t* first, const uint8_t* second, float* result);
  void SumRows(int64_t row, uint8_t* result) const;

  const PictureSize from_, to_;
  const Axis columns_, rows_;
  std::vector<uint8_t> row_;        // The maximum of two rows, and room for reading past its end.
  std::vector<float> rows_shrunk_;  // [height, columns_.stride]
};

}  // namespace torchbeast
