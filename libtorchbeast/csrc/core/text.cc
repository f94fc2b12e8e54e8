#include "core/text.h"

#include <cstdint>

namespace torchbeast {

namespace {

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Bytes of the valid UTF-8 sequence that `text` begins with; 0 if it begins with none.
size_t SequenceLength(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  const auto second = static_cast<uint8_t>(text[1]);
  // Overlong forms, surrogates, and what is beyond U+10FFFF.
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second > 0x9F) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  // U+0080 to U+009F are control characters.
  if (first == 0xC2 && second < 0xA0) return 0;
  return length;
}

}  // namespace

std::string CleanText(std::string_view text, size_t max_bytes) {
  std::string result;
  if (text.size() > max_bytes) {
    text.remove_prefix(text.size() - max_bytes);
    while (!text.empty() && IsContinuation(text.front())) text.remove_prefix(1);
    result = "...";
  }
  while (!text.empty()) {
    const auto first = static_cast<uint8_t>(text[0]);
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    const size_t length = is_control ? 0 : SequenceLength(text);
    if (length == 0) {
      result += '?';
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

}  // namespace torchbeast
