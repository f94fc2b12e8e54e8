#include "kernels/residual_section.h"

#include <optional>

#include "kernels/filter_gradient.h"

namespace torchbeast {

#if TB_HAS_AVX512

namespace {

// Adds a block's branch to `inputs`.
void RunBlock(Convolution& first, Convolution& second, const uint16_t* inputs, uint16_t* hidden,
              uint16_t* outputs) {
  first.Run(inputs, true, {hidden});
  second.Run(hidden, true, {outputs, nullptr, inputs});
}

// Computes the gradients of one block.
struct BlockBackward {
  BlockBackward(const Filters& first, const Filters& second, const ConvolutionShape& shape)
      : to_inputs(Convolution::ForInputGradients(first, shape)),
        to_hidden(Convolution::ForInputGradients(second, shape)),
        first(shape),
        second(shape),
        hidden_gradients(MakeZeros(shape.height * shape.width * shape.outputs)) {}

  void Run(const uint16_t* inputs, const uint16_t* hidden, const uint16_t* gradients,
           uint16_t* input_gradients) {
    second.Add(hidden, true, gradients);
    to_hidden.Run(gradients, false, {hidden_gradients.get(), hidden});
    first.Add(inputs, true, hidden_gradients.get());
    to_inputs.Run(hidden_gradients.get(), false, {input_gradients, inputs, gradients});
  }

  Convolution to_inputs, to_hidden;
  FilterGradient first, second;
  Bfloats hidden_gradients;
};

}  // namespace

void ResidualSection(const std::array<Filters, kSectionConvolutions>& filters,
                     const SectionActivations<uint16_t, uint8_t>& activations, uint16_t* outputs,
                     const SectionShape& shape) {
  const ConvolutionShape block = shape.block();
  Convolution first(filters[0], shape.first()), a(filters[1], block), b(filters[2], block),
      c(filters[3], block), d(filters[4], block);
  const int64_t input_size = shape.height * shape.width * shape.inputs;
  const int64_t size = block.height * block.width * block.outputs;
  const Bfloats convolved = MakeZeros(shape.height * shape.width * shape.outputs);
  const bool is_kept = activations.pooled != nullptr;
  // Room for one picture, if the activations are not kept.
  const Bfloats scratch = MakeZeros(is_kept ? 0 : 3 * size);
  for (int64_t n = 0; n < shape.count; ++n) {
    const auto of_picture = [&](uint16_t* kept, int64_t place) {
      return is_kept ? kept + n * size : scratch.get() + place * size;
    };
    uint16_t* pooled = of_picture(activations.pooled, 0);
    uint16_t* middle = of_picture(activations.middle, 1);
    first.Run(activations.inputs + n * input_size, false, {convolved.get()});
    MaxPool(convolved.get(), pooled, is_kept ? activations.indices + n * size : nullptr,
            shape.pool());
    RunBlock(a, b, pooled, of_picture(activations.hidden1, 2), middle);
    RunBlock(c, d, middle, of_picture(activations.hidden2, 2), outputs + n * size);
  }
}

void ResidualSectionBackward(const std::array<Filters, kSectionConvolutions>& filters,
                             const SectionActivations<const uint16_t, const uint8_t>& activations,
                             const uint16_t* gradients, uint16_t* input_gradients,
                             const std::array<FilterGradients, kSectionConvolutions>& results,
                             const SectionShape& shape) {
  const ConvolutionShape block = shape.block();
  BlockBackward block1(filters[1], filters[2], block), block2(filters[3], filters[4], block);
  FilterGradient first(shape.first());
  std::optional<Convolution> to_inputs;
  if (input_gradients) {
    to_inputs.emplace(Convolution::ForInputGradients(filters[0], shape.first()));
  }
  const int64_t input_size = shape.height * shape.width * shape.inputs;
  const int64_t size = block.height * block.width * block.outputs;
  const Bfloats middle = MakeZeros(size), pooled = MakeZeros(size);
  const Bfloats convolved = MakeZeros(shape.height * shape.width * shape.outputs);
  for (int64_t n = 0; n < shape.count; ++n) {
    const int64_t at = n * size;
    block2.Run(activations.middle + at, activations.hidden2 + at, gradients + at, middle.get());
    block1.Run(activations.pooled + at, activations.hidden1 + at, middle.get(), pooled.get());
    MaxPoolBackward(pooled.get(), activations.indices + at, convolved.get(), shape.pool());
    first.Add(activations.inputs + n * input_size, false, convolved.get());
    if (to_inputs) {
      to_inputs->Run(convolved.get(), false, {input_gradients + n * input_size});
    }
  }
  const FilterGradient* sums[] = {&first, &block1.first, &block1.second, &block2.first,
                                  &block2.second};
  for (size_t i = 0; i < kSectionConvolutions; ++i) {
    sums[i]->Write(results[i].weight, results[i].bias);
  }
}

#endif

}  // namespace torchbeast
