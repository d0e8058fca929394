//! A pole that stands on a cart, and falls unless the cart is pushed the right way.
//!
//! The equations are those of A. G. Barto, R. S. Sutton, C. W. Anderson: Neuronlike Adaptive Elements That
//! Can Solve Difficult Learning Control Problems (IEEE Transactions on Systems, Man, and Cybernetics, 1983),
//! without friction; the constants, the step of Euler's method and the limits are the usual ones.

use crate::random::Random;

const GRAVITY: f32 = 9.8;
const CART_MASS: f32 = 1.0;
const POLE_MASS: f32 = 0.1;
const TOTAL_MASS: f32 = CART_MASS + POLE_MASS;
/// Half of the pole, in metres.
const POLE_HALF_LENGTH: f32 = 0.5;
/// Of a push, in newtons.
const FORCE: f32 = 10.0;
/// From one step to the next, in seconds.
const TAU: f32 = 0.02;
/// Where the cart leaves the track, in metres from the middle.
const MAX_POSITION: f32 = 2.4;
/// How far the pole may lean, in radians.
const MAX_ANGLE: f32 = 12.0 * std::f32::consts::PI / 180.0;
/// Every number of a state begins within this of 0.
const START_WITHIN: f32 = 0.05;

/// An episode ends after so many steps; the reward of each is 1.
pub(crate) const MAX_STEPS: usize = 200;

/// What there is to see: position, speed, angle and angular speed, each divided by about what is usual.
pub(crate) type Seen = [f32; 4];

/// What can be done: push to the left (0) or to the right (1).
pub(crate) const N_ACTIONS: usize = 2;

/// What a step has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It goes on.
    Stands,
    /// The pole has fallen, or the cart has left the track.
    Fell,
    /// It has stood for [`MAX_STEPS`].
    Enough,
}

/// One episode.
#[derive(Clone, Debug)]
pub(crate) struct CartPole {
    position: f32,
    speed: f32,
    angle: f32,
    angular_speed: f32,
    n_steps: usize,
}

impl CartPole {
    /// A pole that nearly stands upright on a cart that nearly stands still.
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut near_zero = || START_WITHIN * random.next_signed();
        Self {
            position: near_zero(),
            speed: near_zero(),
            angle: near_zero(),
            angular_speed: near_zero(),
            n_steps: 0,
        }
    }

    /// How many steps it has made, which is the reward so far.
    pub(crate) fn n_steps(&self) -> usize {
        self.n_steps
    }

    pub(crate) fn see(&self) -> Seen {
        [self.position / MAX_POSITION, self.speed / 2.0, self.angle / MAX_ANGLE, self.angular_speed / 2.0]
    }

    /// Pushes the cart.
    pub(crate) fn step(&mut self, action: usize) -> Outcome {
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sin, cos) = self.angle.sin_cos();
        let pole_mass_length = POLE_MASS * POLE_HALF_LENGTH;
        let swing = (force + pole_mass_length * self.angular_speed.powi(2) * sin) / TOTAL_MASS;
        let inertia = POLE_HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos.powi(2) / TOTAL_MASS);
        let angular_acceleration = (GRAVITY * sin - cos * swing) / inertia;
        let acceleration = swing - pole_mass_length * angular_acceleration * cos / TOTAL_MASS;
        self.position += TAU * self.speed;
        self.speed += TAU * acceleration;
        self.angle += TAU * self.angular_speed;
        self.angular_speed += TAU * angular_acceleration;
        self.n_steps += 1;
        if self.position.abs() > MAX_POSITION || self.angle.abs() > MAX_ANGLE {
            Outcome::Fell
        } else if self.n_steps >= MAX_STEPS {
            Outcome::Enough
        } else {
            Outcome::Stands
        }
    }
}
