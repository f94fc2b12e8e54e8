// A step of RMSProp in one pass over memory.
#pragma once

#include <cstdint>

namespace torchbeast {

struct RmsPropOptions {
  float learning_rate, alpha, epsilon, momentum;
};

// Arrays of `size` numbers: `square_averages` move toward the squares of `gradients` by 1 - alpha,
// and `parameters` by the learning rate times gradient / (sqrt(average) + epsilon), through
// `momenta` where it is not null. Needs HasAvx512().
void StepRmsProp(float* parameters, const float* gradients, float* square_averages, float* momenta,
                 int64_t size, const RmsPropOptions& options);

}  // namespace torchbeast
