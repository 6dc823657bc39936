"""Passes over loaders: which one feeds the training, which one an evaluation uses, and how each ended."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

TRAIN = "train"


@dataclass(eq=False, slots=True)
class LoaderState:
    """A loader, or any other iterable of a loop.

    Attributes:
        gone: whether the program holds it no more.
        trains: whether an optimizer has stepped after a batch of it.
    """

    gone: bool = False
    trains: bool = False


@dataclass(eq=False, slots=True)
class BatchPass:
    """One pass over a loader.

    Attributes:
        loader: the loader.
        endless: whether the same generator had begun a pass over the loader before: a stream that never ends.
        skipped: batches that the loader states to leave out at its beginning.
        pulls: batches so far.
        first_pull: number of its first pull among all pulls of the run.
        last_pull: number of its last pull among them.
        phase: the phase that a call would have been in when it was pulled last.
        feeds: whether a training call was made on a batch of it.
        at_last: whether the batch that was pulled last is known to be the last one.
        exhausted: number of the pull that found it empty; 0 if none did.
        gone: whether its iterator is held no more.
        served: batches whose step is over.
        ahead: batches that were pulled before the first of them was used, as by a loader that looks for the last one.
        counted: batches that training calls were made on.
        alone: how many of those were the only batch that was pulled for the call.
        first: batches that were pulled for the first training call on it.
        most: the most batches that were pulled for a later one.
        kept: training calls before the second pull and after the last, which may be on batches that were pulled earlier.
    """

    loader: LoaderState
    endless: bool = False
    skipped: int = 0
    pulls: int = 0
    first_pull: int = 0
    last_pull: int = 0
    phase: str = ""
    feeds: bool = False
    at_last: bool = False
    exhausted: int = 0
    gone: bool = False
    served: int = 0
    ahead: int = -1
    counted: int = 0
    alone: int = 0
    first: int = 0
    most: int = 0
    kept: int = 0

    @property
    def unused(self) -> int:
        """Batches at its beginning that no training call used.

        A loader that fetches ahead pulls more batches for its first call too, but uses them for calls after its last pull. Where later
        calls use several batches, the first one may use all of its own.
        """
        return max(self.first - 1 - self.kept, 0) if self.is_over and self.most <= 1 else 0

    @property
    def is_over(self) -> bool:
        """Whether its last batch was pulled, as far as that is known."""
        return bool(self.exhausted) or self.at_last

    @property
    def is_a_loop(self) -> bool:
        """Whether it had steps of its own, one batch after the other, rather than steps that also use batches of other loaders."""
        return self.alone > 1

    @property
    def live(self) -> bool:
        """Whether more batches may follow."""
        return not self.exhausted and not self.gone

    @property
    def unserved(self) -> bool:
        """Whether a batch was pulled that no step has used yet."""
        return self.served < self.pulls

    def serve(self) -> None:
        """A step uses a batch: the last one pulled, or the next one if batches are pulled ahead."""
        if self.ahead < 0:
            self.ahead = self.pulls - 1
        self.served = self.pulls if self.exhausted else self.pulls - self.ahead


@dataclass(slots=True)
class BatchPasses:
    """The passes of a run.

    Attributes:
        main: the pass whose loader's epochs are counted: of the passes that feed the training the first in each step.
        mains: the loaders of the main passes of the open epoch.
        epoch: the passes that training calls of the open epoch were made on.
        fresh: passes pulled since the last training call, in the order of their pulls.
        pulls: pulls so far.
        training_pulls: batches of passes on which training calls were made.
        training_passes: these passes.
        alone: whether the epoch before was over one loader, so that a pass over another one is not a part of the same epoch.
    """

    main: BatchPass | None = None
    mains: list[LoaderState] = field(default_factory=list)
    epoch: list[BatchPass] = field(default_factory=list)
    fresh: list[BatchPass] = field(default_factory=list)
    pulls: int = 0
    training_pulls: int = 0
    training_passes: int = 0
    alone: bool = False
    _loaders: dict[Hashable, LoaderState] = field(default_factory=dict)
    _passes: dict[Hashable, BatchPass] = field(default_factory=dict)
    _order: list[BatchPass] = field(default_factory=list)
    _evaluated: list[BatchPass] = field(default_factory=list)

    def begin(self, key: Hashable, loader: Hashable, endless: bool, skipped: int) -> None:
        """Begin a pass."""
        state = self._loaders.setdefault(loader, LoaderState())
        self._passes[key] = BatchPass(state, endless, skipped)

    def known(self, key: Hashable) -> BatchPass | None:
        """A pass that was begun before."""
        return self._passes.get(key)

    def pull(self, key: Hashable, phase: str, last: bool) -> BatchPass:
        """Record a batch."""
        found = self._passes.get(key)
        if found is None:
            found = self._passes[key] = BatchPass(LoaderState())
        self.pulls += 1
        found.pulls += 1
        self.training_pulls += found.feeds
        found.exhausted = 0  # within a pass, a loader may restart its inner iterator
        found.first_pull = found.first_pull or self.pulls
        found.last_pull, found.phase, found.at_last = self.pulls, phase, last
        if self._evaluated:
            self._leave_out(found)
        if found not in self.fresh:
            self.fresh.append(found)
        if found in self._order:
            self._order.remove(found)
        self._order.append(found)
        return found

    def evaluate(self) -> None:
        """Record a call of another phase: the batches that were pulled for training since the last training call may be for it instead."""
        self._evaluated = [one for one in self.fresh if one.phase == TRAIN]

    def _leave_out(self, pulled: BatchPass) -> None:
        """Another batch is pulled after a call of another phase: the batch that this call used is not one for training.

        A loop may get a batch for evaluation from an iterator that it keeps, before it sets the model to eval mode. Of loops that make
        labels from a batch and train on it with another one, no training call was made on a batch of the other one alone.
        """
        main, used = self.main, self._evaluated
        self._evaluated = []
        if main is not None and main.alone:
            self.fresh = [one for one in self.fresh if one not in used or one is pulled or one.feeds or one.loader.trains]

    def exhaust(self, key: Hashable) -> BatchPass | None:
        """Record that a pass has ended."""
        found = self._passes.get(key)
        if found is not None:
            self.pulls += 1
            found.exhausted = self.pulls
            if found.ahead < 1 or not found.unserved:
                self._forget(found)
        return found

    def drop(self, key: Hashable) -> BatchPass | None:
        """Record that the iterator of a pass was deleted."""
        found = self._passes.pop(key, None)
        if found is not None:
            found.gone = True
            self._forget(found)
        return found

    def drop_loader(self, loader: Hashable) -> None:
        """Record that a loader was deleted."""
        state = self._loaders.pop(loader, None)
        if state is not None:
            state.gone = True

    def _forget(self, found: BatchPass) -> None:
        self._order = [one for one in self._order if one is not found]

    def evaluated(self, phase: str) -> BatchPass | None:
        """The pass that a phase other than `train` iterates over: the last one pulled, if it was pulled in that phase."""
        last = self._order[-1] if self._order else None
        return last if last is not None and last.phase == phase and not last.feeds else None

    def feed(self) -> list[BatchPass]:
        """The passes that feed the training call that begins: those pulled since the call before that have not ended."""
        live = [one for one in self.fresh if one.live]
        self.fresh.clear()
        self._evaluated = []
        found = [one for one in live if one.phase == TRAIN]
        if not found and not self.has_main:
            found = live
        for one in found:
            if one.feeds:
                one.most = max(one.most, one.pulls - one.counted)
            else:
                one.first = one.pulls
                self.training_passes += 1
                self.training_pulls += one.pulls
            one.feeds, one.counted, one.alone = True, one.pulls, one.alone + (len(found) == 1)
            if one.ahead < 0:
                one.ahead = one.pulls - 1
            if one not in self.epoch:
                self.epoch.append(one)
        return found

    def ahead(self, *, grad: bool) -> list[BatchPass]:
        """The pass that the next training call is going to be on: pulled for training, over a loader that is known to train.

        Args:
            grad: whether gradients are on in a call of another phase, as in an attack on the batch; no evaluation needs them, so that
                a loader that is not known is one for training too.
        """
        live = [one for one in self.fresh if one.live and one.phase == TRAIN]
        found = [one for one in live[:1] if not one.feeds and (one.loader.trains or grad)]
        return found if not self.has_main else []

    def keep(self) -> None:
        """Record a training call for which no batch was pulled."""
        main = self.main
        if main is not None and (not main.most or main.is_over):
            main.kept += 1

    def skipped(self, *, unused: bool) -> int:
        """Batches at the beginning of a main pass of the open epoch that were left out.

        Args:
            unused: whether those count that were pulled and not used.
        """
        mains = [one for one in self.epoch if one.loader in self.mains]
        return max((one.skipped or (one.unused if unused else 0) for one in mains), default=0)

    @property
    def has_main(self) -> bool:
        """Whether training is in the middle of a pass: it may give more batches, or gave one ahead and nothing was pulled since."""
        main = self.main
        return main is not None and not main.gone and (not main.exhausted or (main.ahead > 0 and main.exhausted == self.pulls))

    def adopt(self, fed: list[BatchPass], known: set[LoaderState], *, by_optimizer: bool) -> bool:
        """Take the first of the passes that feed a training call for the main one, if there is none.

        Args:
            fed: those passes.
            known: the loaders of the epoch before this call.
            by_optimizer: whether only an optimizer's step makes a loader a training loader.

        Returns:
            Whether the pass begins an epoch: its loader was gone over in the open one already, or its main loaders were deleted, or it
            follows epochs over one loader each, as a fine-tuning follows a training.
        """
        if not fed or fed[0] is self.main or (self.main is not None and self._goes_on(self.main, fed[0])):
            return False
        self.main = fed[0]
        mains = [loader for loader in self.mains if loader.trains or not by_optimizer]
        alone, other = len(set(self.mains)) == 1, self.main.loader not in self.mains
        self.mains.append(self.main.loader)
        again = self.main.loader in known and (self.main.loader.trains or not by_optimizer)
        begins = again or (bool(mains) and all(loader.gone for loader in mains)) or (self.alone and alone and other)
        if begins:
            self.alone = alone
        return begins

    def _goes_on(self, main: BatchPass, fed: BatchPass) -> bool:
        """Whether the main pass is still the one of the loop, although a training call uses a batch of another one.

        One that the program holds and has left, such as the iterator of a warm-up, continues no more: a whole pass over the other loader
        went by without it.
        """
        if not main.live or main.loader is fed.loader:
            return False
        before = [one.first_pull for one in self.epoch if one.loader is fed.loader and one is not fed]
        return not (main.is_a_loop and before and main.last_pull < before[-1])

    @property
    def loaders(self) -> set[LoaderState]:
        """The loaders of the open epoch."""
        return {one.loader for one in self.epoch}

    def optimizer_stepped(self) -> None:
        """Mark the loaders that have fed training calls as training loaders."""
        for one in self.epoch:
            one.loader.trains = True

    def left(self, *, held_too: bool) -> bool:
        """Whether a pass of the open epoch was left early: no complete pass was pulled after one that was left.

        Args:
            held_too: whether a pass that the program holds still was left too, rather than to continue in the next epoch.
        """
        unused = [self.main] if self.main in self.fresh and not self.main.exhausted else []  # its last batch was pulled, and not trained on
        over = [one for one in self.epoch if one.is_over and one not in unused]
        open_ones = [one for one in self.epoch if one not in over and (held_too or one.gone)]
        ended = max((one.exhausted or one.last_pull for one in over), default=0)
        return any(one.last_pull > ended for one in open_ones)

    def end_epoch(self, keep: Iterable[BatchPass] = ()) -> None:
        """Begin another epoch with the passes that continue."""
        for one in self.epoch:
            one.first = one.skipped = 0  # of a pass that continues, the beginning was in the epoch that ends
        self.epoch = list(keep)
        self.mains = [self.main.loader] if self.main is not None and self.main in self.epoch else []
