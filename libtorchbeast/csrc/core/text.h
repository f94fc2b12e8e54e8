// Text that comes from the other side of a stream, made fit for logs, messages and protobuf.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace torchbeast {

// `text` as valid UTF-8 without control characters other than line feeds and tabs: "?" stands for
// each byte of what is replaced. Of a text longer than `max_bytes` the end, after "...".
std::string CleanText(std::string_view text, size_t max_bytes);

}  // namespace torchbeast
