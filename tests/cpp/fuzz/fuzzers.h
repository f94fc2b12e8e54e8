// What the fuzzers run on each input. The tests run it on the kept corpus.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchbeast {

// The client's end: the messages are replies of a server that may send anything. Returns normally
// for replies that follow the protocol and for those that are refused; throws, or the sanitizers
// stop it, if there is a fault.
void FuzzReply(const uint8_t* data, size_t size);

// The server's end: the messages are requests of a client that may send anything. What the server
// answers goes to a client's end, which must accept it. Returns and throws as above.
void FuzzRequest(const uint8_t* data, size_t size);

}  // namespace torchbeast
