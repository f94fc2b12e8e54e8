#include "wire/transport.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace torchbeast {
namespace {

TEST(TransportTest, LiteralLoopbackAddressesAreLocal) {
  for (const char* address :
       {"unix:/tmp/x", "localhost:1", "127.0.0.1:1", "127.255.0.9:1", "[::1]:1"}) {
    EXPECT_TRUE(IsLocal(address)) << address;
  }
}

TEST(TransportTest, NamesThatLookLocalAreNot) {
  for (const char* address : {"127.evil.example.com:1", "127.0.0.1.example.com:1", "127.1:1",
                              "localhost.example.com:1", "[::2]:1", "0.0.0.0:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(IsLocal(address)) << address;
  }
}

TEST(TransportTest, RefusesWhatIsNoAddress) {
  for (const char* address : {"", "nonsense", "unix:", ":1", "host:", "host:port"}) {
    EXPECT_THROW(IsLocal(address), std::invalid_argument) << address;
  }
}

TEST(TransportTest, RefusesSocketPathsThatGrpcWouldTakeForOthers) {
  for (const char* address : {"unix:/tmp/a%41", "unix:%2f", "unix:/tmp/a?b", "unix:/tmp/a#1",
                              "unix:/tmp/a,b", "unix://tmp/a"}) {
    EXPECT_THROW(IsLocal(address), std::invalid_argument) << address;
  }
  EXPECT_TRUE(IsLocal("unix:///tmp/a"));
}

}  // namespace
}  // namespace torchbeast
