#include "input.h"

#include <algorithm>

namespace torchbeast {

FuzzInput Split(const uint8_t* data, size_t size) {
  FuzzInput input;
  if (size == 0) return input;
  input.options = data[0];
  size_t place = 1;
  while (place + 2 <= size) {
    const size_t announced = data[place] | data[place + 1] << 8;
    place += 2;
    const size_t length = std::min(announced, size - place);
    input.messages.emplace_back(reinterpret_cast<const char*>(data + place), length);
    place += length;
  }
  return input;
}

std::string Join(const FuzzInput& input) {
  std::string bytes(1, static_cast<char>(input.options));
  for (const std::string& message : input.messages) {
    const size_t size = std::min<size_t>(message.size(), UINT16_MAX);
    bytes += static_cast<char>(size & 0xFF);
    bytes += static_cast<char>(size >> 8);
    bytes.append(message, 0, size);
  }
  return bytes;
}

}  // namespace torchbeast
