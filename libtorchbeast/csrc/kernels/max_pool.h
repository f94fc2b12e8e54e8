// Max pooling with windows of 3 x 3, stride 2 and padding 1, as IMPALA's ResNet has it, of a
// bfloat16 picture with the channels last.
//
// torch's own kernel keeps the index of each maximum as 64-bit numbers and takes two to four times
// as long, a quarter of all that the network costs. These need HasAvx512Bf16().
#pragma once

#include <cstdint>

namespace torchbeast {

// A picture [H, W, C]; C must be a multiple of kPoolChannels.
struct PoolShape {
  int64_t height, width, channels;

  int64_t pooled_height() const { return (height + 1) / 2; }
  int64_t pooled_width() const { return (width + 1) / 2; }
};

constexpr int64_t kPoolChannels = 16;

// `outputs` [(H + 1) / 2, (W + 1) / 2, C] are the maxima of `inputs` [H, W, C]; both are bits
// of bfloat16 numbers. `indices`, of the outputs' shape, gets the index of each maximum in its
// window, 0 to 8 row by row, the first of several equal ones, where -0 is less than 0; may be null.
// A window with NaN has maximum NaN.
void MaxPool(const uint16_t* inputs, uint16_t* outputs, uint8_t* indices, const PoolShape& shape);

// `input_gradients` [H, W, C] are the sums of the `gradients` [(H + 1) / 2, (W + 1) / 2, C]
// of those windows whose maximum each input is. Sums are float32, rounded once.
void MaxPoolBackward(const uint16_t* gradients, const uint8_t* indices, uint16_t* input_gradients,
                     const PoolShape& shape);

}  // namespace torchbeast
