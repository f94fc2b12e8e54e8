// Runs the fuzzers on their kept inputs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/fuzzers.h"

namespace torchbeast {
namespace {

void RunAll(const std::string& directory, void (*fuzz)(const uint8_t*, size_t)) {
  int count = 0;
  const auto path = std::filesystem::path(FUZZ_CORPUS) / directory;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(fuzz(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(CorpusTest, Replies) { RunAll("reply", FuzzReply); }

TEST(CorpusTest, Requests) { RunAll("request", FuzzRequest); }

}  // namespace
}  // namespace torchbeast
