from torchbeast.joining.admission import Admission, Bounds


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_an_address_that_connects_too_often_has_to_wait():
    clock = Clock()
    admission = Admission(Bounds(burst=3, per_second=2), clock)
    assert [admission.admits("a") for _ in range(4)] == [True, True, True, False]
    assert admission.admits("b")
    clock.now = 0.5
    assert [admission.admits("a") for _ in range(2)] == [True, False]
    clock.now = 100
    assert [admission.admits("a") for _ in range(4)] == [True, True, True, False]


def test_connections_that_say_nothing_are_bounded_in_number():
    admission = Admission(Bounds(max_unknown=2), Clock())
    with admission.unknown(), admission.unknown():
        assert not admission.admits("a")
    assert admission.admits("a")


def test_a_flood_of_addresses_does_not_fill_the_memory():
    clock = Clock()
    admission = Admission(Bounds(burst=1, per_second=1, max_addresses=10), clock)
    assert sum(admission.admits(str(i)) for i in range(100)) == 10
    clock.now = 2
    assert admission.admits("new")
