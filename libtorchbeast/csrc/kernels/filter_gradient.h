// The gradients of a convolution's filters.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/bordered_picture.h"
#include "kernels/convolution.h"
#include "kernels/convolution_backend.h"

namespace torchbeast {

#if TB_HAS_AVX512

// Sums the gradients of filters over pictures. An object serves one thread at a time.
class FilterGradient {
 public:
  explicit FilterGradient(const ConvolutionShape& shape,
                          const ConvolutionBackend& backend = ConvolutionBackend::Best());

  // Adds those of a picture [H, W, inputs] whose outputs have `gradients` [H, W, outputs].
  void Add(const uint16_t* inputs, bool relu, const uint16_t* gradients);

  // Writes the sums, `weight` [outputs, 3, 3, inputs] and `bias` [outputs].
  void Write(float* weight, float* bias) const;

 private:
  void TransposeInputs();
  void PairGradients(const uint16_t* gradients);

  const ConvolutionShape shape_;
  const ConvolutionBackend& backend_;
  BorderedPicture picture_;
  const int64_t positions_;  // Outputs and two more, rounded up to a vector of bfloat16.
  const int64_t stride_;     // The distance of rows of `transposed_`.
  Bfloats transposed_;       // See FilterGradientProducts.
  Bfloats gradients_;        // Likewise, behind two positions of zeros.
  std::vector<float> sums_;  // Likewise.
  std::vector<float> bias_;  // [outputs]
};

#endif

}  // namespace torchbeast
