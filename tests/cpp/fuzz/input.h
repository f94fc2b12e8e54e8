// How the fuzzers take their input apart: one byte of options, then messages, each behind its size
// in two bytes, little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchbeast {

struct FuzzInput {
  uint8_t options = 0;
  // Serialized.
  std::vector<std::string> messages;
};

// Takes any bytes: a last message that is too short ends where they end.
FuzzInput Split(const uint8_t* data, size_t size);
std::string Join(const FuzzInput& input);

}  // namespace torchbeast
