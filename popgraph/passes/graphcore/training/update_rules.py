"""The update rules of SGD, Adam, Lamb, AdaGrad, RMSProp and AdaDelta, as formulas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.optimizer_spec import SGD, Adam, Adaptive, OptimizerSpec

VELOCITY = "Accl___"
"""Prefix of the state that is both velocity and accumulator."""


class RuleContext(Protocol):
    """Input of an update rule: one weight, its gradient, scalars and state."""

    weight: Term
    gradient: Term

    @property
    def accumulates(self) -> bool:
        """Whether an update follows several micro-batches."""

    def scalar(self, prefix: str) -> Term:
        """A compound scalar of `OptimizerSpec.compounds`."""

    def first(self, prefix: str) -> float:
        """The initial value of a compound scalar."""

    def state(self, prefix: str, first: float = 0.0, of_weight: bool = False) -> Term:
        """State with the shape of the weight, initially `first`, or `first` * weight."""

    def step(self) -> Term:
        """The number of this step, starting at 1."""

    def keep(self, prefix: str, value: Term) -> None:
        """Sets the next value of a state."""

    def report(self, prefix: str, value: Term) -> None:
        """Offers an intermediate value as an extra output: prefix and the weight's name."""


class UpdateRule(ABC):
    """
    One optimizer. Clipping of updates applies to the result of `enter`, before `finish`.

    Symbols as in PopART's headers: g gradient, w weight, v and m moments, s scaled gradient.
    """

    replicas = 1.0
    """PopART clips this multiple of the result of `enter`."""

    def __init__(self, context: RuleContext) -> None:
        self.context = context

    @abstractmethod
    def enter(self) -> Term:
        """The update's input: the gradient, the scaled gradient or the velocity."""

    @abstractmethod
    def finish(self, entered: Term) -> Term:
        """The new weight."""


class PlainSGD(UpdateRule):
    """w <- w * wdsf0 - slr0 * g."""

    def enter(self) -> Term:
        return self.context.gradient

    def finish(self, entered: Term) -> Term:
        decayed = self.context.weight * self.context.scalar("weightDecayScaleFactor0")
        return decayed - entered * self.context.scalar("scaledLearningRate0")


class CombinedSGD(UpdateRule):
    """
    v <- v + dpsf1 * g;  w <- w - slr1 * v;  v <- smm1 * v + swd1 * w.

    The velocity includes the next step's momentum and weight decay, so that it can accumulate
    gradients. PopART's update uses the sum of the replicas' velocities, this one their mean.
    A clipped velocity changes the weight only; the velocity itself is kept unclipped.
    """

    def __init__(self, context: RuleContext, spec: SGD) -> None:
        super().__init__(context)
        self.nesterov = spec.nesterov
        self.replicas = float(spec.replicas) if spec.accumulates else 1.0

    def enter(self) -> Term:
        context = self.context
        decay = context.first("scaledWeightDecay1")
        velocity = context.state(VELOCITY, decay, of_weight=True)
        velocity += context.gradient * context.scalar("dampeningScaleFactor1")
        context.report("AcclIntoUpdate___", velocity)
        if context.accumulates:
            context.report(VELOCITY, velocity)
        self.velocity = velocity
        return nesterov_step(context, 1, context.gradient, velocity) if self.nesterov else velocity

    def finish(self, entered: Term) -> Term:
        context = self.context
        weight = context.weight - entered * context.scalar("scaledLearningRate1")
        velocity = self.velocity * context.scalar("scaledMomentum1")
        velocity += weight * context.scalar("scaledWeightDecay1")
        context.keep(VELOCITY, velocity)
        context.report("AcclOutOfAcclUpdate___", velocity)
        return weight


class SeparateSGD(UpdateRule):
    """
    v <- smm2 * v + dpsf2 * g + swd1 * w;  w <- w - slr2 * v.

    A clipped velocity changes the weight only; the velocity itself is kept unclipped.
    """

    def __init__(self, context: RuleContext, spec: SGD) -> None:
        super().__init__(context)
        self.nesterov = spec.nesterov

    def enter(self) -> Term:
        context = self.context
        velocity = context.state("Accl1___") * context.scalar("scaledMomentum2")
        velocity += context.gradient * context.scalar("dampeningScaleFactor2")
        velocity += context.weight * context.scalar("scaledWeightDecay1")
        context.keep("Accl1___", velocity)
        context.report("AcclIntoUpdate___", velocity)
        return nesterov_step(context, 2, context.gradient, velocity) if self.nesterov else velocity

    def finish(self, entered: Term) -> Term:
        return self.context.weight - entered * self.context.scalar("scaledLearningRate2")


def nesterov_step(context: RuleContext, number: int, gradient: Term, velocity: Term) -> Term:
    """ngsf * (ndsf * g + wd * w) + mm * v."""
    slope = gradient * context.scalar(f"nesterovDampeningScaleFactor{number}")
    slope += context.weight * context.scalar("sgdWeightDecay")
    scaled = slope * context.scalar(f"nesterovGradScaleFactor{number}")
    return scaled + velocity * context.scalar("sgdMomentum")


class AdamRule(UpdateRule):
    """
    m <- b1 * m + (1 - b1) * s;  v <- b2 * v + (1 - b2) * s^2;  x = mc / (sqrt(vc) + eps).

    mc and vc are bias corrected. AdaMax: v <- max(b2 * v, |s|) and x = mc / (v + eps).
    Lamb: x <- x * ||w|| / ||x||.
    """

    def __init__(self, context: RuleContext, spec: Adam) -> None:
        super().__init__(context)
        self.spec = spec

    def enter(self) -> Term:
        scaled = self.context.gradient * self.context.scalar("adamGradientScaling")
        if self.spec.decay:
            return scaled
        return scaled + self.context.weight * self.context.scalar("weightDecay")

    def finish(self, entered: Term) -> Term:
        context = self.context
        step = self._step(entered)
        if self.spec.decay:
            step += context.weight * context.scalar("weightDecay")
        context.report("AdamUpdater___", step)
        if self.spec.is_lamb:
            step = step * self._trust(step)
        return context.weight - step * context.scalar("learningRate")

    def _step(self, s: Term) -> Term:
        context = self.context
        beta1, beta2 = context.scalar("adamBeta1"), context.scalar("adamBeta2")
        moment = context.state("Accl1___") * beta1 + s * (1.0 - beta1)
        context.keep("Accl1___", moment)
        if self.spec.mode == "ada_max":
            second = (context.state("Accl2___") * beta2).maximum(s.abs())
        else:
            second = context.state("Accl2___") * beta2 + s * s * (1.0 - beta2)
        context.keep("Accl2___", second)
        if self.spec.corrects_bias:
            count = context.step()
            moment = moment / (1.0 - beta1**count)
            if self.spec.mode != "ada_max":
                second = second / (1.0 - beta2**count)
        root = second if self.spec.mode == "ada_max" else second.sqrt()
        return moment / (root + context.scalar("adamEps"))

    def _trust(self, step: Term) -> Term:
        """min(||w||, maximum) / ||x||; 1 if any of the three is 0."""
        maximum = self.context.scalar("maxWeightNorm")
        if maximum.value == 0.0:
            return maximum.known(1.0)
        weight, length = norm(self.context.weight), norm(step)
        ratio = weight.minimum(maximum) / length
        for zero in (weight, length, maximum):
            if not isinstance(zero.value, float):
                ratio = ratio.known(1.0).where(zero.equals(0.0), ratio)
        return ratio


def norm_squared(term: Term) -> Term:
    return (term * term).sum()


def norm(term: Term) -> Term:
    return norm_squared(term).sqrt()


class AdaptiveRule(UpdateRule):
    """
    AdaGrad v1 <- v1 + s^2, x = s / (sqrt(v1) + eps);  RMSProp v1 <- a * v1 + (1 - a) * s^2.

    Centered: v2 <- a * v2 + (1 - a) * s, x = s / (sqrt(v1 - v2^2) + eps).
    AdaDelta: x = s * sqrt(v2 + eps) / sqrt(v1 + eps), v2 <- a * v2 + (1 - a) * x^2.
    """

    def __init__(self, context: RuleContext, spec: Adaptive) -> None:
        super().__init__(context)
        self.spec = spec

    def enter(self) -> Term:
        scaled = self.context.gradient * self.context.scalar("adaptiveGradientScaling")
        if self.spec.decay:
            return scaled
        return scaled + self.context.weight * self.context.scalar("weightDecay")

    def finish(self, entered: Term) -> Term:
        context, rate = self.context, self.context.scalar("learningRate")
        step = self._step(entered)
        context.report("AdaptiveUpdater___", step)
        decay = context.weight * context.scalar("weightDecay") if self.spec.decay else None
        if self.spec.has_velocity:
            if self.spec.tf_variant:
                step = step * rate
            step = context.state("Accl3___") * context.scalar("adaptiveMomentum") + step
            context.keep("Accl3___", step)
        if decay is not None:
            step += decay
        if not (self.spec.has_velocity and self.spec.tf_variant):
            step = step * rate
        return context.weight - step

    def _step(self, s: Term) -> Term:
        context, epsilon = self.context, self.context.scalar("adaptiveEps")
        if self.spec.mode == "ada_grad":
            square = context.state("Accl1___") + s * s
            context.keep("Accl1___", square)
            return s / (square.sqrt() + epsilon)
        alpha = context.scalar("adaptiveAlpha")

        def average(prefix: str, new: Term, first: float = 0.0) -> Term:
            value = context.state(prefix, first) * alpha + new * (1.0 - alpha)
            context.keep(prefix, value)
            return value

        # TensorFlow initializes the mean square with 1.
        square = average("Accl1___", s * s, 1.0 if self.spec.tf_variant else 0.0)
        if self.spec.mode == "ada_delta":
            before = context.state("Accl2___")
            step = s * (before + epsilon).sqrt() / (square + epsilon).sqrt()
            average("Accl2___", step * step)
            return step
        if self.spec.mode == "centered_rms_prop":
            mean = average("Accl2___", s)
            square = square - mean * mean
        if self.spec.tf_variant:
            return s / (square + epsilon).sqrt()
        return s / (square.sqrt() + epsilon)


def rule_for(spec: OptimizerSpec, context: RuleContext) -> UpdateRule:
    match spec:
        case SGD() if not spec.has_velocity:
            return PlainSGD(context)
        case SGD():
            return CombinedSGD(context, spec) if spec.combined else SeparateSGD(context, spec)
        case Adam():
            return AdamRule(context, spec)
        case Adaptive():
            return AdaptiveRule(context, spec)
    raise AssertionError(f"no update rule for {spec}")
