// A section of IMPALA's ResNet: a convolution, max pooling, and two residual blocks.
//
// A block adds convolution(relu(convolution(relu(x)))) to x. Each picture passes through the whole
// section while it is in the processor's cache; torch's operations take all pictures through one
// layer after another. Needs HasAvx512Bf16().
#pragma once

#include <array>
#include <cstdint>

#include "kernels/convolution.h"
#include "kernels/max_pool.h"

namespace torchbeast {

// Pictures [N, H, W, inputs] become [N, (H + 1) / 2, (W + 1) / 2, outputs].
struct SectionShape {
  int64_t count, height, width, inputs, outputs;

  ConvolutionShape first() const { return {height, width, inputs, outputs}; }
  PoolShape pool() const { return {height, width, outputs}; }
  ConvolutionShape block() const {
    return {pool().pooled_height(), pool().pooled_width(), outputs, outputs};
  }
};

// The first, then two of each block.
constexpr size_t kSectionConvolutions = 5;

// What the layers pass on, as bits of bfloat16. All but the first have the outputs' shape.
template <typename Number, typename Index>
struct SectionActivations {
  const uint16_t* inputs;
  Index* indices;  // The indices of the maxima, see max_pool.h.
  Number* pooled;  // What the first block gets.
  Number* hidden1;
  Number* middle;  // What the second block gets.
  Number* hidden2;
};

// Computes the section's `outputs`, and writes all of `activations` but the inputs, for the
// backward pass. If the pointers to them are null, nothing is kept.
void ResidualSection(const std::array<Filters, kSectionConvolutions>& filters,
                     const SectionActivations<uint16_t, uint8_t>& activations, uint16_t* outputs,
                     const SectionShape& shape);

// Where gradients of filters go.
struct FilterGradients {
  float* weight;  // [outputs, 3, 3, inputs]
  float* bias;    // [outputs]
};

// Computes gradients from those of the outputs. `input_gradients` may be null, and must be if there
// are 4 inputs.
void ResidualSectionBackward(const std::array<Filters, kSectionConvolutions>& filters,
                             const SectionActivations<const uint16_t, const uint8_t>& activations,
                             const uint16_t* gradients, uint16_t* input_gradients,
                             const std::array<FilterGradients, kSectionConvolutions>& results,
                             const SectionShape& shape);

}  // namespace torchbeast
