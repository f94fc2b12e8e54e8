// Convolutions with filters of 3 x 3, stride 1 and padding 1 of one bfloat16 picture with the
// channels last, and the gradients of their inputs.
//
// A ReLU before the convolution, its derivative behind the gradient and an addition cost nothing
// here: the numbers pass through registers anyway. Products are summed in float32 and rounded once.
// All of this needs HasAvx512Bf16(). An object serves one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/bordered_picture.h"
#include "kernels/convolution_backend.h"

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

#if TB_HAS_AVX512

class Convolution {
 public:
  // What becomes of the sums.
  struct Outputs {
    uint16_t* numbers;  // [H, W, outputs]
    // Likewise: the input of a ReLU whose derivative multiplies the sums.
    const uint16_t* relu_input = nullptr;
    const uint16_t* residual = nullptr;  // Likewise: added to the result.
  };

  Convolution(const Filters& filters, const ConvolutionShape& shape,
              const ConvolutionBackend& backend = ConvolutionBackend::Best());

  // The gradients of the inputs from those of the outputs: a convolution, too, with each filter
  // rotated by 180 degrees.
  static Convolution ForInputGradients(
      const Filters& filters, const ConvolutionShape& shape,
      const ConvolutionBackend& backend = ConvolutionBackend::Best());

  // `relu`: of the inputs [H, W, inputs].
  void Run(const uint16_t* inputs, bool relu, const Outputs& outputs);

 private:
  Convolution(const float* weight, const float* bias, const ConvolutionShape& shape,
              bool for_gradients, const ConvolutionBackend& backend);

  void Pack(const float* weight, bool for_gradients);
  void Finish(const float* sums, int64_t position, int64_t count, const Outputs& outputs) const;

  const ConvolutionShape shape_;
  const ConvolutionBackend& backend_;
  BorderedPicture picture_;
  Bfloats weights_;  // The weights of the products.
  ConvolutionProducts products_;
  std::vector<float> bias_;  // [outputs]
};

#endif

}  // namespace torchbeast
