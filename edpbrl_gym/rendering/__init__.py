"""From prompts to images, through diffusers."""
