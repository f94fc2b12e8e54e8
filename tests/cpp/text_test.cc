#include "core/text.h"

#include <gtest/gtest.h>

namespace torchbeast {
namespace {

TEST(CleanTextTest, KeepsWhatIsText) {
  const std::string text = "line\n\ttab, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80";
  EXPECT_EQ(CleanText(text, 100), text);
}

TEST(CleanTextTest, ReplacesWhatIsNoText) {
  EXPECT_EQ(CleanText("a\xFF"
                      "b",
                      100),
            "a?b");
  EXPECT_EQ(CleanText("\x1B[2J", 100), "?[2J");
  EXPECT_EQ(CleanText(std::string("a\0b", 3), 100), "a?b");
  EXPECT_EQ(CleanText("\xC3", 100), "?");                 // Cut off.
  EXPECT_EQ(CleanText("\xC0\xAF", 100), "??");            // Overlong.
  EXPECT_EQ(CleanText("\xED\xA0\x80", 100), "???");       // A surrogate.
  EXPECT_EQ(CleanText("\xF5\x80\x80\x80", 100), "????");  // Beyond U+10FFFF.
  EXPECT_EQ(CleanText("\xC2\x9B", 100), "??");            // A control character of C1.
}

TEST(CleanTextTest, CutsBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xC3\xA9";
  EXPECT_EQ(CleanText(text, 5), "...\xC3\xA9\xC3\xA9");
}

}  // namespace
}  // namespace torchbeast
