// Mutations that keep an input's sizes right: nearly every change of a single byte makes a message
// that cannot be parsed.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

namespace torchbeast {

// Changes the input of `size` bytes at `data`, whose messages are of the type of `prototype`.
// Returns its new size, at most `max_size`.
size_t MutateInput(const google::protobuf::Message& prototype, uint8_t* data, size_t size,
                   size_t max_size, unsigned int seed);

}  // namespace torchbeast
