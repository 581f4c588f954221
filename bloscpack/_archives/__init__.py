"""What archives are made of: names, writing, reading, and the check of damage."""
