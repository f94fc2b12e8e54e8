// Convolutions with filters of 3 x 3, stride 1 and padding 1 of one bfloat16 picture with the
// channels last, and their gradients, on AMX.
//
// A ReLU before the convolution, its derivative behind the gradient and an addition cost nothing
// here: the numbers pass through registers anyway. Products are summed in float32 and rounded once.
// All of this needs HasAmx(). An object serves one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "amx.h"

namespace torchbeast {

// A picture [H, W, inputs] becomes one [H, W, outputs].
struct ConvolutionShape {
  int64_t height, width, inputs, outputs;

  // Whether Convolution and FilterGradient can do these numbers of channels. Input gradients, which
  // need 16 or 32 inputs, then work, too.
  bool IsSupported() const {
    return (outputs == 16 && (inputs == 4 || inputs == 16)) ||
           (outputs == 32 && (inputs == 16 || inputs == 32));
  }
};

struct Filters {
  const float* weight;  // [outputs, 3, 3, inputs]
  const float* bias;    // [outputs]
};

#if TB_HAS_AMX

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
// each of a filter's 9 inputs has the same distance from its output at every position, and tiles
// may run over the ends of rows: what they compute at the border is dropped.
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

class Convolution {
 public:
  // What becomes of the sums.
  struct Outputs {
    uint16_t* numbers;                // [H, W, outputs]
    const uint16_t* gate = nullptr;   // Likewise; sums count as 0 where it is not positive.
    const uint16_t* added = nullptr;  // Likewise; added behind the gate.
  };

  Convolution(const Filters& filters, const ConvolutionShape& shape);

  // The gradients of the inputs from those of the outputs: a convolution, too, with each filter
  // turned round.
  static Convolution ForInputGradients(const Filters& filters, const ConvolutionShape& shape);

  // `relu`: of the inputs [H, W, inputs].
  void Run(const uint16_t* inputs, bool relu, const Outputs& outputs);

 private:
  // A product of tiles: neighbouring inputs of a row of the filters.
  struct Step {
    int64_t offset;  // From the position of the output.
    bool is_short;   // The tiles have fewer columns, or rows, than the registers could have.
  };

  Convolution(const float* weight, const float* bias, const ConvolutionShape& shape,
              bool for_gradients);

  void Pack(const float* weight, bool for_gradients);
  TileShapes MakeTileShapes() const;
  void SumTo16Outputs(const uint16_t* inputs, float* sums) const;
  void SumTo32Outputs(const uint16_t* inputs, float* sums) const;
  void Finish(const float* sums, int64_t position, int64_t group, const Outputs& outputs) const;

  const ConvolutionShape shape_;
  const int64_t positions_at_once_;
  BorderedPicture picture_;
  std::vector<Step> steps_;
  Bfloats weights_;              // Tiles [steps, outputs / 16, 16, 16, 2].
  std::vector<float> bias_;      // [outputs]
  std::vector<int32_t> pixels_;  // Of each position; negative where there is none.
};

// Sums the gradients of filters over pictures.
class FilterGradient {
 public:
  explicit FilterGradient(const ConvolutionShape& shape);

  // Adds those of a picture [H, W, inputs] whose outputs have `gradients` [H, W, outputs].
  void Add(const uint16_t* inputs, bool relu, const uint16_t* gradients);

  // Writes the sums, `weight` [outputs, 3, 3, inputs] and `bias` [outputs].
  void Write(float* weight, float* bias) const;

 private:
  void TransposeInputs();
  void PairGradients(const uint16_t* gradients);
  void AddTo16Outputs();
  void AddTo32Outputs();

  const ConvolutionShape shape_;
  BorderedPicture picture_;
  const int64_t positions_;  // Of outputs, rounded up to a row of a tile.
  const int64_t stride_;     // Between rows of `transposed_`.
  Bfloats transposed_;       // Rows of inputs at all positions: tiles [channels, positions].
  Bfloats gradients_;        // Tiles [positions / 2, outputs, 2], zeros at the border.
  std::vector<float> sums_;  // Tiles [16, 16].
  std::vector<float> bias_;  // [outputs]
};

#endif

}  // namespace torchbeast
