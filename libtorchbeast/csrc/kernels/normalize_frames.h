// The network's input from stacks of four frames: less the game's mean picture, times its scale, as
// bfloat16 numbers with the channels last.
#pragma once

#include <cstdint>

namespace torchbeast {

constexpr int64_t kStackedFrames = 4;

// Stacks [N, 4, P] of P pixels each.
struct StackShape {
  int64_t count, pixels;
};

// `outputs` [N, P, 4] are bits of bfloat16 numbers: `stacks` [N, 4, P] less `means` [K, P, 4],
// times `scales` [K]. `games` [N] are places in `means` and `scales`, each within bounds. Computed
// in float32 and rounded once. Needs HasAvx512Bf16().
void NormalizeFrames(const uint8_t* stacks, const float* means, const float* scales,
                     const int32_t* games, uint16_t* outputs, const StackShape& shape);

}  // namespace torchbeast
